"""A real Slurm on this machine, private to one process: munged, slurmctld and a slurmd per node, with configuration, key,
sockets, state and logs in one temporary folder. It touches no Slurm that the machine has (all programs get SLURM_CONF),
and needs neither systemd nor control groups; it has to run as root, since slurmd starts jobs as their users.

Whatever ends the process, a guard ends every process that was started for the cluster and removes its folder.
"""
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAMS = ["munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "scontrol", "sinfo"]
SBIN = "/usr/sbin:/sbin"

CONFIGURATION = """ClusterName=trireme
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld
SlurmdLogFile={folder}/log/slurmd-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/{task}
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=bf_interval=1,sched_interval=1
ReturnToService=2
SlurmdTimeout={timeout}
InactiveLimit=0
KillWait=20
"""
# A job that is put back waits for cred_expire seconds, at least 5; the usual 120 would be most of a test.
NODE = "NodeName=node{n} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory=64 State=UNKNOWN\n"
PARTITION = "PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"


def missing():
    """Why no cluster can be started here; empty if one can."""
    if os.geteuid() != 0:
        return "a Slurm of one's own takes root: slurmd starts jobs as their users"
    absent = [program for program in PROGRAMS if not find(program)]
    if absent:
        return f"no {', '.join(absent)}: on Debian, apt-get install slurmctld slurmd slurm-client munge"
    return ""


def find(program):
    return shutil.which(program, path=os.environ.get("PATH", "") + ":" + SBIN)


def free_ports(number):
    sockets = [socket.socket() for _ in range(number)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def processes_of(folder):
    """Processes with the cluster's configuration in their environment: its daemons and all that they started."""
    mark = f"SLURM_CONF={folder}/slurm.conf".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name)
            except OSError:
                pass  # it has ended


def clean_up(folder):
    for _ in range(100):
        left = list(processes_of(folder))
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if not left:
            break
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


class Cluster:
    """`with Cluster(nodes) as slurm`: a partition of so many nodes, all of them this machine. Task plugin "affinity" binds tasks to
    cores, "none" does not."""

    def __init__(self, nodes=2, timeout=5, cpus=1, task="none"):
        self.folder = Path(tempfile.mkdtemp(prefix="trireme-slurm-"))
        guard = [sys.executable, "-B", __file__, "--guard", str(self.folder)]
        self.guard = subprocess.Popen(guard, stdin=subprocess.PIPE, start_new_session=True)
        self.folder.chmod(0o755)  # munge's socket is for all users
        for part in ("state", "log"):
            (self.folder / part).mkdir()
        foreign = ("SLURM", "SBATCH", "SRUN", "PMI", "OMPI", "PMIX")  # of a job that this may run in
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        self.environment |= {"SLURM_CONF": f"{self.folder}/slurm.conf", "PATH": f"{os.environ['PATH']}:{SBIN}"}
        self.nodes = [f"node{n}" for n in range(nodes)]
        ports = free_ports(1 + nodes)
        (self.folder / "slurm.conf").write_text(
            CONFIGURATION.format(folder=self.folder, ports=ports, timeout=timeout, task=task)
            + "".join(NODE.format(n=n, port=port, cpus=cpus) for n, port in enumerate(ports[1:])) + PARTITION)

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.guard.stdin.close()
        self.guard.wait()

    def start(self):
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self.daemon("munged", "--force", f"--socket={self.folder}/munge.socket", f"--key-file={key}",
                    f"--pid-file={self.folder}/munged.pid", f"--seed-file={self.folder}/munge.seed",
                    f"--log-file={self.folder}/log/munged")
        self.daemon("slurmctld", "-c", "-f", f"{self.folder}/slurm.conf")
        for node in self.nodes:
            self.start_node(node)
        self.until(lambda: all(state == "idle" for state in self.states().values()), 30, "all nodes are idle")

    def daemon(self, *command):
        said = subprocess.run(command, env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        if said.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} ended with {said.returncode}:\n{said.stdout}{self.logs()}")

    def start_node(self, node):
        self.daemon("slurmd", "-N", node, "-f", f"{self.folder}/slurm.conf")

    def fail_node(self, node):
        """What runs on a node ends at once, as if its power had gone: slurmd, and all that it started there."""
        mark = f"SLURMD_NODENAME={node}".encode()
        victims = {int((self.folder / f"slurmd-{node}.pid").read_text())}
        for pid in processes_of(self.folder):
            try:
                if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    victims |= {pid, self.parent(pid)}
            except OSError:
                pass
        for pid in victims:
            try:
                if pid in processes_of(self.folder):
                    os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    @staticmethod
    def parent(pid):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

    def run(self, *command, cwd=None):
        """What a command prints; an error if it fails."""
        said = subprocess.run(command, env=self.environment, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=120)
        if said.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))} ended with {said.returncode}:\n{said.stdout}{said.stderr}")
        return said.stdout

    def states(self):
        """The state of each node, without the marks of one that does not answer."""
        lines = self.run("sinfo", "--noheader", "--Node", "--format=%N %T").split("\n")
        return dict(line.split() for line in lines if line)

    def job(self, job):
        """What `scontrol show job` knows: {field: value}."""
        words = self.run("scontrol", "--oneliner", "show", "job", str(job)).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def until(self, condition, seconds, what):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(f"within {seconds} s not: {what}\n{self.logs()}")
            time.sleep(0.02)

    def logs(self):
        return "".join(f"== {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-25:]) + "\n"
                       for path in sorted((self.folder / "log").iterdir()))


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()  # ends with the process that holds the other end
    clean_up(sys.argv[2])
