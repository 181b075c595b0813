"""Networks: what they are, how signals run through them, and which law their spectrum follows.

What is computed is the law of infinite width, and it treats the random factors of the Jacobian as
free. That is exact for plain chains, for one residual block, for branches whose last factor is
not diagonal, and in the limit of infinite depth at fixed effective cumulant. Residual blocks
a I + D W in a row are not free of each other at finite depth, because their diagonal matrices
are diagonal in the same basis; see `ResNet.spectrum` for what that changes.

Networks that apply phi before the weights, x^l = a x^{l-1} + W phi(x^{l-1}), are not covered: the
slopes of different layers then depend on each other. In convolutional networks the channels play
the part of the width, and N Var(W_ij) is taps times channels times the variance of a weight
(Tarnowski et al. 2018).
"""

from .feedforward import FeedForward
from .resnet import ResNet

__all__ = ["FeedForward", "ResNet"]
