"""``orrery accuracy``: trainings with messages in every data type, and their accuracies compared."""

from dataclasses import replace
from typing import Annotated

import typer

from executor.accuracy.accuracy_request import AccuracyRequest
from orrery.terminal.options import JsonOption
from orrery.terminal.output import Out, out_files, out_option, print_json, print_lines, write_results
from orrery.terminal.progress import progress_bar
from orrery.terminal.request_options import takes_requests
from orrery.terminal.views import print_rich

_OutOption = Annotated[Out | None, out_option("index.html", "accuracy.json")]


@takes_requests
def orrery_accuracy(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model, such as digits or mnist-mlp.")] = "digits",
    *,
    request: AccuracyRequest,
    out: _OutOption = None,
    json: JsonOption = False,
) -> None:
    """Train with messages in every data type, and compare with float32 on samples that were held out."""
    from executor.runtime.requirements import check_torch

    check_torch("accuracy")
    from executor.accuracy.accuracy_run import accuracy_study
    from reports.pages.accuracy_page import accuracy_html
    from reports.tables.accuracy_tables import accuracy_headline, accuracy_table, remarks

    with out_files(out) as files, progress_bar(model) as progress:
        result = accuracy_study(replace(request, model=model), progress=progress)
        values = result.values()
        write_results(files, lambda: accuracy_html(result), values)
    if json:
        return print_json(values)
    print_rich(accuracy_table(result))
    print_lines([accuracy_headline(result), *remarks(result)], out)
