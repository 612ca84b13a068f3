"""Tests of `tools/job --cores` and `--numa-domains`, which bind ranks and threads to the cores of a node; test_job.py runs
them."""
import re

from scripts import ROOT, Scripts

SRUN = "--cpus-per-task={} --threads-per-core=1 --cpu-bind=cores --distribution=block:block trireme train"


class Binding(Scripts):
    TIME = ["--nodes", "2", "--time", "01:00:00"]
    NODE = [*TIME, "--cores", "128", "--numa-domains", "8"]

    def with_threads(self):
        return self.built_with("OPENMP, SERIAL")

    def test_nothing_is_bound_without_the_number_of_cores(self):
        text = self.printed(*self.TIME, "--ranks-per-node", "8", *self.with_threads())
        for word in ("OMP_", "bind", "--distribution", "threads-per-core", "cpus-per-task"):
            self.assertNotIn(word, text)

    def test_ranks_share_the_cores_evenly_and_have_a_thread_on_each(self):
        for ranks, size in ((8, 16), (16, 8), (64, 2)):
            text = self.printed(*self.NODE, "--ranks-per-node", str(ranks), *self.with_threads())
            self.assertIn(f"\nexport OMP_NUM_THREADS={size} OMP_PLACES=cores OMP_PROC_BIND=close\n", text)
            self.assertIn(SRUN.format(size), text)
            self.assertIn(f"#SBATCH --threads-per-core=1\n#SBATCH --cpus-per-task={size}\n", text)

    def test_a_build_without_threads_sets_none(self):
        text = self.printed(*self.NODE, "--ranks-per-node", "128", *self.built_with("SERIAL"))
        self.assertNotIn("OMP_", text)
        self.assertIn(SRUN.format(1), text)

    def test_cores_without_a_thread_are_reported(self):
        said = self.call(*self.NODE, "--ranks-per-node", "8", *self.built_with("SERIAL"))
        self.assertEqual(said.returncode, 0)
        self.assertIn("one thread per rank, which leaves 15 of the 16 cores of each rank idle", said.stderr)
        self.assertEqual(self.call(*self.NODE, "--ranks-per-node", "8", *self.built_with("CUDA, SERIAL")).stderr, "")

    def test_ranks_with_cores_of_several_numa_domains_are_reported(self):
        for given, part in ((["12"], "6 of 12 ranks"), (["4"], "4 of 4 ranks"), (["24"], "6 of 24 ranks"),
                            (["8", "--cpus-per-rank", "15"], "7 of 8 ranks")):
            said = self.call(*self.NODE, "--ranks-per-node", *given, *self.with_threads())
            self.assertEqual(said.returncode, 0, said.stderr)
            self.assertIn(f"{part} per node have cores of several NUMA domains", said.stderr)
        self.assertIn("15 cores per rank, 16 per domain; give --cpus-per-rank with a divisor of 16", said.stderr)
        said = self.call(*self.NODE, "--ranks-per-node", "12", *self.with_threads())
        self.assertIn("10 cores per rank, 16 per domain; give --ranks-per-node 8 or 16\n", said.stderr)

    def test_the_advised_numbers_of_ranks_are_not_reported(self):
        for cores, domains in ((128, 8), (96, 8), (64, 4), (56, 4), (104, 2), (7, 1)):
            for ranks in range(1, cores + 1):
                said = self.call("--time", "01:00:00", "--cores", str(cores), "--numa-domains", str(domains), "--ranks-per-node",
                                 str(ranks), *self.with_threads())
                size = cores // ranks
                across = [rank for rank in range(ranks)
                          if rank * size * domains // cores != ((rank + 1) * size - 1) * domains // cores]
                self.assertEqual(bool(said.stderr), bool(across), (cores, domains, ranks))
                for advised in re.findall(r"\d+", said.stderr.partition("--ranks-per-node ")[2]):
                    self.assertEqual(int(advised) % domains, 0)
                    self.assertEqual(cores % int(advised), 0, "the advised ranks use all cores")

    def test_a_launcher_line_of_the_user_is_not_changed(self):
        """Threads are not placed then: ranks that nothing binds would all place them on the first cores."""
        text = self.printed(*self.NODE, "--ranks-per-node", "8", *self.with_threads(), "--launch",
                            "mpiexec -n {ranks} -bind-to core:{cores_per_rank}")
        self.assertIn("\nexport OMP_NUM_THREADS=16\n", text)
        self.assertIn("\nmpiexec -n 16 -bind-to core:16 trireme train", text)

    def test_pbs_and_flux_bind_in_their_own_words(self):
        arguments = [*self.NODE, "--ranks-per-node", "8", *self.with_threads()]
        text = self.printed(*arguments, "--batch", "pbs")
        self.assertIn("\nmpiexec -n 16 -ppn 8 -bind-to core:16 trireme train", text)
        self.assertIn("#PBS -l select=2:ncpus=128:mpiprocs=8\n", text)
        text = self.printed(*arguments, "--batch", "flux")
        self.assertIn("--cores-per-task=16 --setopt=cpu-affinity=per-task trireme train", text)

    def test_parts_of_a_range_of_nodes_are_bound(self):
        text = self.printed("--nodes", "2-4", "--time", "01:00:00", "--cores", "128", "--ranks-per-node", "8", *self.with_threads())
        self.assertIn(SRUN.format(16), text)
        self.assertIn("#SBATCH --mincpus=128\n", text)

    def test_the_cores_of_a_site_file(self):
        good = (ROOT / "tools/sites/generic.toml").read_text()
        node = '[node]\ncores = 96\nnuma_domains = 4\nranks = 4\nsource = "https://example.org"\n'
        (self.folder / "mine.toml").write_text(good + node)
        self.assertIn(SRUN.format(24), self.printed(*self.TIME, "--site", "mine.toml", *self.with_threads()))
        (self.folder / "mine.toml").write_text(good + node.replace("ranks = 4", "cpus_per_rank = 4"))
        self.refused("[node] has cores and cpus_per_rank", *self.TIME, "--site", "mine.toml")

    def test_mistakes(self):
        ranks = ["--ranks-per-node", "8"]
        self.refused("a node has 4 cores, and each rank needs its own", *self.TIME, *ranks, "--cores", "4")
        self.refused("--numa-domains 3: does not divide the 128 cores", *self.TIME, *ranks, "--cores", "128", "--numa-domains", "3")
        self.refused("--numa-domains needs the number of cores", *self.TIME, *ranks, "--numa-domains", "4")
        self.refused("8 ranks need 136 cores, and a node has 128; give at most 16", *self.NODE, *ranks, "--cpus-per-rank", "17")
        for site, cores in (("alps", "288"), ("lumi", "64")):
            self.refused(f"the launcher line of {site} binds the ranks itself", *self.TIME, "--site", site, "--account", "g",
                         "--cores", cores)
