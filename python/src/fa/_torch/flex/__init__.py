"""FlexAttention on CPUs."""
