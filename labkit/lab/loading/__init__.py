"""Load benches without an experiment's file: two arms against each other, or the latencies of one."""
