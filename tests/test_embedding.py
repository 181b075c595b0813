"""The public C and Cython interfaces, used from outside against the installed package."""

import importlib.util
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import fastspec as fs

C_PROGRAM = r"""
#include <fastspec.h>
#include <stdio.h>

int main(void)
{
    fspec_law *law;
    int status = fspec_law_resnet_limit(0.125, 1.0, 0.0, &law);
    if (status != FSPEC_OK) return puts(fspec_status_message(status)), 1;
    double lam[4] = {0.5, 1.0, 2.0, 3.0}, rho[4], low, high;
    fspec_law_density(law, 4, lam, FSPEC_LAMBDA, rho);
    fspec_law_support(law, &low, &high);
    for (int i = 0; i < 4; i++) printf("%.17g\n", rho[i]);
    printf("%.17g\n%.17g\n", low, high);
    fspec_law_free(law);
    return 0;
}
"""

CYTHON_MODULE = """
from fastspec.cython_fastspec cimport cdf, density, fspec_law, handle, icdf, pdf

def ask(law, double lam):
    cdef const fspec_law *h = handle(law)
    cdef double values[4]
    cdef double two[2]
    two[0] = two[1] = lam
    with nogil:
        values[0] = pdf(h, lam)
        values[1] = cdf(h, lam)
        values[2] = icdf(h, values[1])
        density(h, 2, two, two)
        values[3] = two[1]
    return [values[i] for i in range(4)]
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler named cc")
def test_outside_c_program_gets_the_same_digits(tmp_path):
    (tmp_path / "outside.c").write_text(C_PROGRAM)
    subprocess.run(
        ["cc", "-std=c99", "-Wall", "-Werror", f"-I{fs.get_include()}", "outside.c",
         f"-L{fs.get_library()}", "-lfastspec", "-lm", "-o", "outside"],
        cwd=tmp_path, check=True,
    )  # fmt: skip
    done = subprocess.run([tmp_path / "outside"], capture_output=True, text=True, check=True)
    law = fs.ResNetLimit(0.125)
    expected = [*law.pdf(np.array([0.5, 1.0, 2.0, 3.0])), *law.support()[0]]
    assert [float(line) for line in done.stdout.split()] == expected


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler named cc")
def test_outside_cython_module_gets_the_same_digits(tmp_path):
    (tmp_path / "outside_module.pyx").write_text(CYTHON_MODULE)
    (tmp_path / "setup.py").write_text(textwrap.dedent("""
        from pathlib import Path

        import fastspec
        from Cython.Build import cythonize
        from setuptools import Extension, setup

        # site-packages; an editable install is not on sys.path, where Cython looks by itself
        home = str(Path(fastspec.__file__).parents[1])
        module = Extension("outside_module", ["outside_module.pyx"],
                           include_dirs=[fastspec.get_include()])
        setup(name="outside_module", py_modules=[], ext_modules=cythonize(
            [module], include_path=[home], language_level=3))
    """))
    built = subprocess.run([sys.executable, "setup.py", "build_ext", "--inplace"], cwd=tmp_path,
                           capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    path = next(Path(tmp_path).glob("outside_module.*.so"))
    spec = importlib.util.spec_from_file_location("outside_module", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    law = fs.FussCatalan(3)
    assert module.ask(law, 0.7) == [law.pdf(0.7), law.cdf(0.7), law.icdf(law.cdf(0.7)),
                                    law.pdf(0.7)]
    with pytest.raises(TypeError, match="law must be a fastspec law, got int"):
        module.ask(3, 0.7)


def test_import_is_light():
    code = ("import sys, fastspec; "
            "print(sorted({'numba', 'scipy', 'matplotlib', 'sklearn'} & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_names_exist_and_are_documented():
    for name in fs.__all__:
        assert getattr(fs, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        fs.nothing  # noqa: B018
