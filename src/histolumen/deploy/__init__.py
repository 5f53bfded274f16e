"""Trained models as one graph for other runtimes: ONNX Runtime, OpenVINO, TorchScript."""
