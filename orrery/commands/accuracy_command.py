"""``orrery accuracy``: trainings with messages in every data type, and their accuracies compared."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from executor.accuracy.accuracy_request import AccuracyRequest
from orrery.terminal.options import JsonOption
from orrery.terminal.output import Out, out_files, out_option, print_json, to_json
from orrery.terminal.progress import progress_bar
from orrery.terminal.request_options import takes_requests
from orrery.terminal.views import print_rich

if TYPE_CHECKING:
    from executor.accuracy.accuracy_result import AccuracyResult


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
    from reports.pages.page_template import write_page

    with out_files(out) as files, progress_bar(model) as progress:
        result = accuracy_study(replace(request, model=model), progress=progress)
        values = result.values()
        if files:
            write_page(accuracy_html(result), files[0])
            files[1].write_bytes(to_json(values))
    print_json(values) if json else _show(result, out)


def _show(result: "AccuracyResult", out: Out | None) -> None:
    """Print the accuracies as a table, then the headline and remarks."""
    from reports.tables.accuracy_tables import accuracy_headline, accuracy_table, remarks

    print_rich(accuracy_table(result))
    lines = [accuracy_headline(result), *remarks(result)]
    print("\n".join([*lines, f"page: {out.files[0]}"] if out else lines))
