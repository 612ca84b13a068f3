"""Binds the ranks of a node to cores, and the threads of a rank to the cores of that rank.

The cores and NUMA domains of a node are in [node] of the site file, or given by --cores and --numa-domains. The ranks of a
node take consecutive cores, so that a rank whose cores lie in one domain uses the memory of that domain only.
"""
import sys

from . import program
from .mistakes import check


def settle_binding(options, site):
    """Sets `cores_per_rank`, and `cpus_per_rank` to the same number; None if the cores of a node are not known."""
    node = site["node"]
    binds = options.launch or site["binding"].get(options.batch)
    check(not (options.cores or options.numa_domains) or binds and "cpus_per_rank" not in node, "--cores and --numa-domains: the "
          f"launcher line of {site['name']} binds the ranks itself; use --cpus-per-rank")
    options.cores = options.cores or node.get("cores")
    options.numa_domains = options.numa_domains or node.get("numa_domains") or 1
    options.cores_per_rank, options.cores_given = None, options.cpus_per_rank is not None
    check(options.cores or options.numa_domains == 1, "--numa-domains needs the number of cores of a node: --cores")
    if not options.cores:
        return
    ranks, cores = options.ranks_per_node, options.cores
    check(ranks <= cores, f"--ranks-per-node {ranks}: a node has {cores} cores, and each rank needs its own")
    check(cores % options.numa_domains == 0, f"--numa-domains {options.numa_domains}: does not divide the {cores} cores of a node")
    size = options.cpus_per_rank or cores // ranks
    check(ranks * size <= cores, f"--cpus-per-rank {size}: {ranks} ranks need {ranks * size} cores, and a node has {cores}; "
          f"give at most {cores // ranks}")
    options.cores_per_rank = options.cpus_per_rank = size


def domains_of(rank, size, domain):
    """The NUMA domains of a rank with `size` cores, in a node whose domains have `domain` cores."""
    return range(rank * size // domain, ((rank + 1) * size - 1) // domain + 1)


def warn_of_binding(options):
    """Says that ranks have cores of several NUMA domains, or that cores have no thread."""
    size = options.cores_per_rank
    if not size:
        return
    ranks, domains = options.ranks_per_node, options.numa_domains
    domain = options.cores // domains
    across = sum(len(domains_of(rank, size, domain)) > 1 for rank in range(ranks))
    if across:
        fitting = [count for count in range(domains, options.cores + 1, domains) if domain % (count // domains) == 0]
        nearest = sorted(sorted(fitting, key=lambda count: abs(count - ranks))[:2])
        advice = (f"--cpus-per-rank with a divisor of {domain}" if options.cores_given
                  else f"--ranks-per-node {' or '.join(map(str, nearest))}")
        print(f"{program()}: {across} of {ranks} ranks per node have cores of several NUMA domains, whose memory is slower for them: "
              f"{size} cores per rank, {domain} per domain; give {advice}", file=sys.stderr)
    if options.trireme_path and not options.threads and not options.devices and size > 1:
        print(f"{program()}: this build of trireme has one thread per rank, which leaves {size - 1} of the {size} cores of each rank "
              "idle; give more --ranks-per-node, or use a build with OpenMP", file=sys.stderr)


def binding_words(options, site):
    """The launcher's options that bind the ranks, from [binding] of the site file; none for a launcher line of the user."""
    return site["binding"].get(options.batch, []) if options.cores_per_rank and not options.launch else []


def thread_lines(options, site):
    """Lines that give each core of a rank one thread. If nothing binds the ranks, their threads must not be placed: all
    ranks would place them on the same cores."""
    if not options.cores_per_rank or not options.threads:
        return []
    places = " OMP_PLACES=cores OMP_PROC_BIND=close" if binding_words(options, site) else ""
    return ["# one thread for each core of a rank", f"export OMP_NUM_THREADS={options.cores_per_rank}{places}"]
