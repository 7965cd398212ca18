"""From a budget to a sweep: which one to run, its price, its worth, and when it has said enough."""
