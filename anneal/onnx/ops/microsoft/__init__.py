"""com.microsoft: what onnxruntime has besides the standard. There is no schema of these operators here, so the defaults
of attributes stand in the functions.
"""

DOMAIN = "com.microsoft"
