"""The compiled part of fastspec: the C library, and the Cython modules that link to it.

Everything else about the package is in pyproject.toml.
"""

import shutil
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_clib import build_clib
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

SOURCES = sorted(str(path) for path in Path("src_c").glob("*.c"))
HEADERS = sorted(str(path) for path in Path("src_c").glob("*.h"))
CFLAGS = ["-std=c11", "-O3", "-fno-math-errno", "-ffp-contract=fast", "-fcx-limited-range",
          "-fvisibility=hidden"]


class BuildLibrary(build_clib):
    """Build libfastspec.a; say in one sentence what is missing when there is no compiler."""

    def build_libraries(self, libraries):
        try:
            super().build_libraries(libraries)
        except CompileError as error:
            raise SystemExit(
                f"fastspec needs a C11 compiler (gcc or clang) and Python's headers: {error}"
            ) from error


class BuildExtensions(build_ext):
    """Build the extensions, then lay the header and the library where users find them."""

    def run(self):
        self.run_command("build_clib")
        super().run()
        in_place = self.inplace or getattr(self, "editable_mode", False)
        package = Path("fastspec" if in_place else f"{self.build_lib}/fastspec")
        library_dir = Path(self.get_finalized_command("build_clib").build_clib)
        for folder, files in (
            ("include", [Path("src_c/fastspec.h")]),
            ("lib", sorted(library_dir.glob("*fastspec.*"))),
        ):
            (package / folder).mkdir(parents=True, exist_ok=True)
            for file in files:
                shutil.copy2(file, package / folder / file.name)


def extension(name):
    """One Cython module linked to the C library."""
    return Extension(
        f"fastspec.{name}",
        [f"fastspec/{name}.pyx"],
        include_dirs=["src_c"],
        depends=HEADERS + SOURCES,
    )


setup(
    libraries=[
        (
            "fastspec",
            {
                "sources": SOURCES,
                "obj_deps": {"": HEADERS},
                "include_dirs": ["src_c"],
                "cflags": CFLAGS,
            },
        )
    ],
    ext_modules=cythonize(
        [extension("_kernels"), extension("cython_fastspec")],
        compiler_directives={"language_level": 3},
    ),
    cmdclass={"build_clib": BuildLibrary, "build_ext": BuildExtensions},
)
