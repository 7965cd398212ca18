"""Every finding of the paper, each with a test that was written down before its runs."""
