"""The checks of `labkit doctor`, one file per part of a machine; each gives lines and raises nothing."""
