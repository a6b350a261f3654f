"""Layer 2: the stages of the data flow. They see the world only through protocols of layer 0."""
