"""What PyTorch's derivatives of operations read, and the tensors that they allocate beside their results.

Source:
    PyTorch 2.13, ``tools/autograd/derivatives.yaml`` and ``torch/csrc/autograd/FunctionsManual.cpp``.
"""


def _words(text: str, what: str) -> dict[str, str]:
    return dict.fromkeys(text.split(), what)


SAVED: dict[str, str] = {
    **_words("relu relu6 sigmoid tanh exp exp2 sqrt rsqrt reciprocal expm1", "result"),
    **_words("softmax _softmax log_softmax _log_softmax softmin amax amin max min prod", "result"),
    **_words("add sub subtract rsub neg round floor ceil sign eq ne gt ge lt le isnan isinf floor_divide", ""),
    **_words("logical_not logical_and logical_or logical_xor bitwise_not bitwise_and bitwise_or", ""),
    **_words("mean sum cumsum flip roll argmax argmin all any scatter_add", ""),
    **_words("mul multiply div true_divide", "factors"),
    **_words("where masked_fill", "condition"),
    **_words("atan2 maximum minimum prelu fmod remainder addcmul addcdiv lerp", "operands"),
}
"""What the derivative of an operation reads: its result, its first operand (all that are not named here), all operands,
those by which another that needs a gradient is multiplied, or the condition."""

PASSED_ON = frozenset(["add", "sub", "subtract"])
"""Operations that hand the gradient of their result on to an operand of the same shape as it is."""

TEMPORARIES: dict[str, int] = {
    "pow": 2,
    "square": 2,
    "rsqrt": 1,
    "sqrt": 1,
    "sin": 1,
    "cos": 1,
    "abs": 1,
    "log2": 1,
    "erf": 2,
}
"""Tensors of the result's size that a derivative allocates beside its own, at most; none of operations not named."""
