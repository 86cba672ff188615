"""Speed as ratios within one run of one machine: ``python -m benchmarks [training …]``."""
