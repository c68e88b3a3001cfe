"""What `kubectl cp` makes of what may lie in a folder: equal, an error, or short without one."""

import asyncio
import os
import shutil
from pathlib import Path

from bench.kube import Failed
from bench.ways import DATA, Kubectl, Raw

CASES = {
    "a symbolic link inside": "echo a > file; ln -s file link",
    "a hard link": "echo a > file; ln file hard",
    "a FIFO": "echo a > file; mkfifo fifo",
    "a name with a newline": "echo a > $'new\\nline'",
    "a name that is no UTF-8": "echo a > $'b\\377d'",
    "an empty folder": "mkdir empty",
    "a sparse file of 8 GiB": "truncate -s 8G sparse",
    "mode 0640 and an execution bit": "echo a > file; chmod 0640 file; echo b > run; chmod 0755 run",
    "a file that grows meanwhile": "head -c 50000000 /dev/zero > log; (for i in $(seq 400); do echo more >> log; "
    "sleep 0.01; done) > /dev/null 2>&1 &",
}
LISTED = "find . -mindepth 1 -printf '%y %m %s %P -> %l\\n' | LC_ALL=C sort"
SECONDS = 60.0


async def told(raw: Raw, kubectl: Kubectl, folder: Path) -> dict[str, str]:
    """By case, in a few words."""
    found: dict[str, str] = {}
    for name, commands in CASES.items():
        await raw.run(f"rm -rf {DATA}/odd; mkdir {DATA}/odd; cd {DATA}/odd; {commands}")
        target = folder / "odd"
        shutil.rmtree(target, ignore_errors=True)
        try:
            async with asyncio.timeout(SECONDS):
                said = await kubectl.cp(f"{kubectl.pod}:{DATA}/odd", str(target))
        except Failed as error:
            found[name] = f"an error: {str(error)[-120:]}"
            continue
        except TimeoutError:
            found[name] = f"goes on after {SECONDS:.0f} s"
            continue
        there = sorted((await raw.run(f"cd {DATA}/odd; {LISTED}")).splitlines())
        here = sorted((await _listed(target)).splitlines())
        words = "equal" if here == there else f"differs with success: {there} became {here}"
        found[name] = words + (f"; says {said.strip()[-100:]!r}" if said.strip() else "")
    return found


async def _listed(folder: Path) -> str:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_shell(LISTED, cwd=folder, stdout=pipe, env=os.environ | {"LC_ALL": "C"})
    return (await process.communicate())[0].decode(errors="replace")
