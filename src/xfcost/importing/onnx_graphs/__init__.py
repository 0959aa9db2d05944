"""ONNX files -> rows: the file, the shapes of every value at given sizes, what operators cost, and the rows."""
