"""How sites load mend, each way tried for real. Usage: sites.py CASE BUILD_DIR PROGRAM

PROGRAM is an MPI program that verifies what it receives. The cases are the functions below; docs/sites.md describes the
same ways in prose.
"""

import os
import pathlib
import shutil
import stat
import sys
import tempfile

import site_common as site

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "configure-scripts"
MODULES = next((p for p in ("/usr/share/modules/init/bash", "/usr/share/lmod/lmod/init/bash") if os.path.exists(p)), "")


def prefix(build, program, work):
    """An own prefix, found by the component path DIR:SYSTEM_DEFAULT."""
    site.install(build, work / "prefix")
    path = {"OMPI_MCA_mca_base_component_path": f"{work}/prefix/lib/openmpi:SYSTEM_DEFAULT"}
    environment = site.clean_environment(**path)
    listing = site.run(["ompi_info", "--param", "btl", "mend", "--level", "9"], environment=environment)
    if "btl_mend_max_outage_s" not in listing:
        site.fail(f"ompi_info does not show mend's parameters:\n{listing[:2000]}")
    environment = site.clean_environment(**path, **site.through_mend(work / "stats"))
    site.run(["mpirun", "-np", "2", program], environment=environment)


def home(build, program, work):
    """~/.openmpi/components, which Open MPI 4.1 searches without being told."""
    if site.major() >= 5:
        print("skipped: Open MPI 5.0's mpirun gives the ranks a search path that leaves this directory out")
        sys.exit(77)
    site.install(build, work / "prefix")
    components = work / "home" / ".openmpi" / "components"
    components.mkdir(parents=True)
    for file in (work / "prefix/lib/openmpi").iterdir():
        (components / file.name).symlink_to(file)
    environment = site.clean_environment(HOME=work / "home", **site.through_mend(work / "stats"))
    site.run(["mpirun", "-np", "2", program], environment=environment)
    site.traffic(work / "stats")
    for old in work.glob("stats.*"):
        old.unlink()
    script = work / "prefix/share/mend/slurm-job.sh"  # without a prefix, it must not hide this directory
    site.run(["bash", str(script), "-np", "2", program], environment={**environment, "MEND_PREFIX": str(work / "nothing")})


def params(build, program, work):
    """mend-mca-params.conf by --tune and by the environment; the command line wins over it."""
    site.install(build, work / "prefix")
    conf = work / "prefix/share/mend/mend-mca-params.conf"
    path = {"OMPI_MCA_mca_base_component_path": f"{work}/prefix/lib/openmpi:SYSTEM_DEFAULT"}
    show = ["ompi_info", "--all", "--level", "9", "--parsable"]
    by_variable = site.clean_environment(OMPI_MCA_mca_base_envar_file_prefix=conf, **path)
    ways = [("variable", show, by_variable)]
    if site.major() < 5:  # 5.0 reads another form of file there
        ways.append(("--tune", ["mpirun", "-np", "1", "--tune", str(conf), *show], site.clean_environment(**path)))
    for how, command, environment in ways:
        shown = site.run(command, environment=environment)
        for line in ("param:pml:value:ob1", f"param:btl:value:self,{'vader' if site.major() < 5 else 'sm'},mend,tcp", "param:btl_mend_max_outage_s:value:120"):
            if line not in shown:
                site.fail(f"{how}: {line} is not in effect")
        if f"param:btl_mend_max_outage_s:source:file ({conf}" not in shown:
            site.fail(f"{how}: btl_mend_max_outage_s does not come from {conf}")
    # A parameter nobody registers is a typing error that Open MPI does not report.
    shown = site.run(show, environment=by_variable)
    for line in conf.read_text().splitlines():
        name = line.lstrip("#").split("=")[0].strip()
        if "=" in line and name.startswith("btl_mend_") and f"param:{name}:" not in shown:
            site.fail(f"{conf.name} sets {name}, which mend does not have")
    environment = site.clean_environment(OMPI_MCA_mca_base_envar_file_prefix=conf, **path, **site.through_mend(work / "stats"))
    del environment["OMPI_MCA_btl"]
    site.run(["mpirun", "-np", "2", "--mca", "btl", "self,mend", program], environment=environment)


def module(build, program, work):
    """The environment module, loaded by environment-modules (or Lmod) in a shell of its own."""
    if not MODULES:
        print("skipped: environment-modules is not installed")
        sys.exit(77)
    site.install(build, work / "prefix")
    environment = site.clean_environment(**site.through_mend(work / "stats"))
    script = f"""set -e; source {MODULES}; module use {work}/prefix/share/modulefiles; module load mend
        test "$MEND_PREFIX" = {work}/prefix; test "$(command -v softhcactl)" = {work}/prefix/bin/softhcactl
        mpirun -np 2 {program}; module unload mend; test -z "${{MEND_PREFIX:-}}" """
    site.run(script, environment=environment, shell=True)


def pbs(build, program, work):
    """The PBS job script, under the variables that a PBS server sets; there is no packaged PBS to run it."""
    site.install(build, work / "prefix")
    script = work / "prefix/share/mend/pbs-job.sh"
    site.run(["bash", "-n", str(script)])
    directives = [line for line in script.read_text().splitlines() if line.startswith("#PBS ")]
    if not any("mpiprocs=2" in line for line in directives) or not any("walltime=" in line for line in directives):
        site.fail(f"the job script asks PBS for no ranks or no time: {directives}")
    (work / "nodes").write_text("localhost\nlocalhost\n")
    environment = site.clean_environment(MEND_PREFIX=work / "prefix", PROGRAM=program, PBS_NODEFILE=work / "nodes", PBS_O_WORKDIR=work,
                                         PBS_JOBID="1.test", PBS_ENVIRONMENT="PBS_BATCH", **site.through_mend(work / "stats"))
    output = site.run(["bash", str(script)], environment=environment, cwd="/")
    if "locked memory limit" not in output:
        site.fail(f"the job script does not say the memlock limit:\n{output}")


def exports(_, __, work):
    """What the job scripts tell Open MPI and PMIx, with and without a component in the prefix."""
    (work / "bin").mkdir()
    (work / "bin/mpirun").write_text("#!/bin/sh\nexec env\n")
    (work / "bin/mpirun").chmod(0o755)
    (work / "with/lib/openmpi").mkdir(parents=True)
    (work / "nodes").write_text("localhost\n")
    own = site.run(["pkg-config", "--variable=libdir", "pmix"]).strip() + "/pmix" if site.major() >= 5 else None  # 4.1 needs none
    path, pmix = "OMPI_MCA_mca_base_component_path", "PMIX_MCA_pmix_mca_base_component_path"
    for prefix_name, given, told in (("with", {path: "/site"}, (f"{work}/with/lib/openmpi:SYSTEM_DEFAULT", own)),
                                     ("without", {}, ("SYSTEM_DEFAULT:USER_DEFAULT", own)),
                                     ("without", {path: "/site", pmix: "/site/pmix"}, ("/site", "/site/pmix"))):
        environment = site.clean_environment(
            PATH=f"{work}/bin:{os.environ['PATH']}", MEND_PREFIX=work / prefix_name, PROGRAM="x", PBS_NODEFILE=work / "nodes",
            PBS_O_WORKDIR=work, **given)
        for name in ("slurm-job.sh", "pbs-job.sh"):
            shown = site.run(["bash", str(SCRIPTS / name), "x"], environment=environment).splitlines()
            seen = dict(line.split("=", 1) for line in shown if line.startswith((f"{path}=", f"{pmix}=")))
            if (seen.get(path), seen.get(pmix)) != told:
                site.fail(f"{name} exports {seen}, want {told}")


def inside(build, program, work):
    """A component in (a copy of) Open MPI's own directory: the job scripts and, where there is one, the module find it."""
    site.install(build, work / "prefix")
    told = site.run(["ompi_info", "--parsable", "--path", "pkglibdir"], environment=site.clean_environment())
    own, installed = work / "own", work / "prefix/lib/openmpi"
    own.mkdir()
    for file in [*pathlib.Path(told.split(":")[2].strip()).iterdir(), installed / "libsofthca.so"]:
        (own / file.name).symlink_to(file.resolve())
    for name in ("mca_btl_mend.so", "help-mpi-btl-mend.txt"):
        (installed / name).rename(own / name)
    shutil.rmtree(installed)
    (work / "nodes").write_text("localhost\nlocalhost\n")
    environment = site.clean_environment(
        OPAL_PKGLIBDIR=own, MEND_PREFIX=work / "prefix", PROGRAM=program, PBS_NODEFILE=work / "nodes", PBS_O_WORKDIR=work,
        **site.through_mend(work / "stats"))
    scripts = work / "prefix/share/mend"
    commands = [f"bash {scripts}/slurm-job.sh -np 2 {program}", f"bash {scripts}/pbs-job.sh"]
    if MODULES:
        commands.append(f"source {MODULES}; module use {work}/prefix/share/modulefiles; module load mend; mpirun -np 2 {program}")
    for command in commands:
        for old in work.glob("stats.*"):
            old.unlink()
        output = site.run(command, environment=environment, shell=True)
        site.traffic(work / "stats")
        if "bad prefix" in output or "component_path" in output:
            site.fail(f"PMIx complains of Open MPI's path: {command}\n{output}")


def system(build, _, work):
    """Without a prefix the component goes where ompi_info says components live (staged by DESTDIR, not installed)."""
    site.run(["cmake", "--install", str(build), "--prefix", "/usr/local"], environment=site.clean_environment(DESTDIR=work / "stage"))
    told = site.run(["ompi_info", "--parsable", "--path", "pkglibdir"], environment=site.clean_environment())
    directory = work / "stage" / told.split(":")[2].strip().lstrip("/")
    for name in ("mca_btl_mend.so", "help-mpi-btl-mend.txt"):
        if not (directory / name).is_file():
            site.fail(f"{name} is not in {directory}")
    link = directory / "libsofthca.so"
    if not (link.is_symlink() and link.resolve().is_file()):
        site.fail(f"{link} does not lead to the installed device: {os.readlink(link) if link.is_symlink() else 'no link'}")
    if stat.S_IMODE((directory / "mca_btl_mend.so").stat().st_mode) & 0o022:
        site.fail("the component is writable by others")


def launcher(build, program, work):
    """An own prefix, named on the command line of mpirun and, with 5.0, of prterun."""
    site.install(build, work / "prefix")
    words = ["-np", "2", "--mca", "mca_base_component_path", f"{work}/prefix/lib/openmpi:SYSTEM_DEFAULT", str(program)]
    environment = site.clean_environment(**site.through_mend(work / "stats"))
    for command in [["mpirun"]] + ([["prterun", "--personality", "ompi"]] if site.major() >= 5 else []):
        for old in work.glob("stats.*"):
            old.unlink()
        site.run([*command, *words], environment=environment)
        site.traffic(work / "stats")


CASES = {case.__name__: case for case in (prefix, launcher, home, params, module, pbs, exports, inside, system)}


def main():
    case, build, program = CASES[sys.argv[1]], pathlib.Path(sys.argv[2]), sys.argv[3]
    work = pathlib.Path(tempfile.mkdtemp(prefix=f"mend-{sys.argv[1]}."))
    try:
        case(build, program, work)
        if case not in (exports, system):
            print(f"{site.traffic(work / 'stats')} bytes went through mend")
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
