"""TaskRuns from other programs: create one, work in its sandbox, say that the work is done, await the reward.

    async with client.connect(namespace="evals") as taskfold:
        async with await taskfold.create_from_folder("tasks/fix-bug") as run:
            await run.ready()
            await run.exec(["bash", "-c", "make fix"])
            await run.finish("Succeeded", response="Fixed.")
            result = await run.result()

Guarantees: every call may be cancelled at any moment: a command ends in the sandbox when its caller does, no connection
and no task is left, and a run whose creation was cancelled is taken away. A run that is left by an error, or that
nobody would finish any more, is cancelled. Results come from the run's status alone.

Errors: `effects.errors.EffectError` of the API server, of commands and of copies; `RunEnded` where there is no sandbox
any more; `build.refused.Refused` for a folder that cannot be run; TimeoutError for a limit of the caller's own.
"""

from taskfold.client.cluster import EXTERNAL, Client, connect, unique_name
from taskfold.client.run import Ended, Result, Run, RunEnded, Sandbox

__all__ = ["EXTERNAL", "Client", "Ended", "Result", "Run", "RunEnded", "Sandbox", "connect", "unique_name"]
