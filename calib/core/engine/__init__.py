"""TensorRT engines without TensorRT: trtexec commands, shape profiles, what a layer information says."""
