"""Networks as trainable PyTorch modules, and their quantization-aware training. Every module here needs PyTorch."""
