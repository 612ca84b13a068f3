"""Processes with a time limit that leave nothing behind, for device_report.py and small_runs.py."""
import ctypes
import os
import signal
import subprocess
import time

PR_SET_PDEATHSIG = 1


class TimeLimit(Exception):
    """A command was stopped at its limit."""


def _end_with_parent():
    """The command does not outlive this process, however that ends. Without Linux' prctl it may."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        pass


def stop(process):
    """Kills a command with all processes of its session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def start(words, log, folder=None, environment=None):
    """Starts a command whose output goes to the open file `log`."""
    return subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                            cwd=folder, env=environment, start_new_session=True, preexec_fn=_end_with_parent)


def run(words, seconds, log, folder=None, environment=None, until=None):
    """The exit code of a command after at most `seconds`; its output is appended to the file `log`.

    `until`, asked ten times per second, ends the command early: the answer is then None.
    """
    with open(log, "ab") as out:
        out.write(f"$ {' '.join(map(str, words))}\n".encode())
        out.flush()
        process = start(words, out, folder, environment)
        end = time.monotonic() + seconds
        try:
            while process.poll() is None:
                if until is not None and until():
                    return None
                if time.monotonic() > end:
                    raise TimeLimit(f"{' '.join(map(str, words))[:200]}: stopped after {seconds:.0f} s")
                time.sleep(0.1 if until is not None else 0.02)
            return process.returncode
        finally:
            stop(process)
