"""Networks as trainable PyTorch modules, quantization-aware training, and its files. Every module here needs PyTorch."""
