"""The search as a mixed-integer program, solved by HiGHS: an oracle that shares no idea with the elimination."""

import numpy as np

from planner.elimination.search_problem import SearchProblem


class _Program:
    """Variables in [0, 1] and rows ``low <= sum of coefficient * variable <= high``."""

    def __init__(self):
        self.price, self.whole, self.rows, self.low, self.high = [], [], [], [], []

    def variables(self, prices, *, whole=False):
        first = len(self.price)
        self.price += list(np.ravel(prices))
        self.whole += [int(whole)] * np.size(prices)
        return np.arange(first, len(self.price)).reshape(np.shape(prices))

    def row(self, plus, minus, *, low=0.0, high=0.0):
        self.rows.append([(v, 1.0) for v in np.ravel(plus)] + [(v, -1.0) for v in np.ravel(minus)])
        self.low.append(low)
        self.high.append(high)

    def solve(self):
        from scipy.optimize import Bounds, LinearConstraint, milp  # each process collects, one solves
        from scipy.sparse import coo_matrix

        cells = [(r, v, x) for r, row in enumerate(self.rows) for v, x in row]
        r, v, x = zip(*cells, strict=True)
        matrix = coo_matrix((x, (r, v)), shape=(len(self.rows), len(self.price)))
        answer = milp(
            self.price,
            integrality=self.whole,
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(matrix.tocsr(), self.low, self.high),
        )
        assert answer.success, answer.message
        return float(answer.fun)


def milp_cost(problem: SearchProblem) -> float:
    """Least cost of a problem without forbidden pairs.

    ``z[i][c]``: node i uses c.  ``w[cu, c]``: so do both ends of an edge.  ``y[cu, L]``: layout L of the tensor is
    asked for while its producer uses cu; it pays the transfer.
    """
    program = _Program()
    z = [program.variables(cost, whole=True) for cost in problem.node_cost_s]
    for choice in z:
        program.row(choice, [], low=1.0, high=1.0)
    for tensor in problem.tensors:
        source = z[tensor.producer]
        columns = {
            int(name): cost[:, c]
            for cost, layout in zip(tensor.cost_s, tensor.layout, strict=True)
            for c, name in enumerate(layout)
        }
        y = {name: program.variables(price) for name, price in columns.items()}
        for consumer, layout in zip(tensor.consumers, tensor.layout, strict=True):
            w = program.variables(np.zeros((len(source), len(layout))))
            for cu, u in enumerate(source):
                program.row(w[cu], u)
                for name in np.unique(layout):
                    program.row(y[int(name)][cu], w[cu, layout == name], high=np.inf)
            for c, v in enumerate(z[consumer]):
                program.row(w[:, c], v)
    return program.solve()
