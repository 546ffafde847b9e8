"""The encoder, the ProtoNet and the fused kernels."""
