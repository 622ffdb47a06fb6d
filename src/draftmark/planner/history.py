"""Past starts out of the store, for the planner to learn from."""

from draftmark.planner.learn import Past
from draftmark.store import Store


def past_starts(store: Store) -> tuple[Past, ...]:
    """Every start that was both predicted and observed, newest last.

    A run without its model's facts still tells by the model's name.
    """
    found = []
    for run in store.runs():
        for trial in store.trials(run.id):
            if not trial.predicted or not trial.observed:
                continue
            speculative = trial.configuration.speculative
            found.append(
                Past(
                    engine=trial.configuration.engine,
                    version=trial.environment.engine_version or trial.configuration.version,
                    device=run.environment.device or trial.environment.device,
                    architecture=run.model.architecture if run.model is not None else "",
                    model=run.model.name if run.model is not None else trial.configuration.model,
                    parallel=trial.configuration.parallel,
                    predicted=trial.predicted[0],
                    observed=trial.observed[0],
                    speculation=speculative.algorithm if speculative is not None else None,
                )
            )
    return tuple(found)
