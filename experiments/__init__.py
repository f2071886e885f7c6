"""The quickstart, the experiments on real data and the benchmarks; run each as ``python -m experiments.NAME``."""
