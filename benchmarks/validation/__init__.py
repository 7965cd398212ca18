"""Judge an estimator of sweeps on planted truth and on published panels; see `__main__`."""
