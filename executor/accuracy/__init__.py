"""Training with every data type of messages, and what it does to the accuracy on samples that were not trained on."""

from executor.accuracy.question import Question
from executor.accuracy.result import Result
from executor.accuracy.study import accuracy_study

__all__ = ["Question", "Result", "accuracy_study"]
