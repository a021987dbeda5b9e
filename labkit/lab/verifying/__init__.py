"""What a model is expected to do here and whether it equals its oracle: fit, head-to-head, badge."""
