"""How unlike the training images an image is, and what is wrong with it; from images alone, without labels or masks."""
