"""Images and labels in, batches out: sources, the manifest they all become, decoding, transforms."""
