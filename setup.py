"""The compiled code: everything else about the package is in pyproject.toml.

They are optional. Where they can't be compiled the package is installed without them, and plain Python does their work.
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "kfs.cat.compiled_fields",
            ["kfs/cat/compiled_fields.pyx"],
            depends=["kfs/read/compiled_rows.pxi"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
        Extension(
            "kfs.dump.compiled_batch_text",
            ["kfs/dump/compiled_batch_text.pyx"],
            depends=["kfs/format/compiled_decode.pxd", "kfs/render/compiled_output.pxd", "kfs/render/output.h"],
            include_dirs=["kfs/render"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
        Extension(
            "kfs.format.compiled_decode",
            ["kfs/format/compiled_decode.pyx"],
            depends=[
                "kfs/format/compiled_batches.pxi",
                "kfs/format/compiled_decode.pxd",
                "kfs/format/compiled_layout.pxi",
                "kfs/format/compiled_messages.pxi",
                "kfs/format/crc.h",
            ],
            extra_compile_args=["-O3"],
            optional=True,
        ),
        Extension(
            "kfs.render.compiled_json",
            ["kfs/render/compiled_json.pyx"],
            depends=[
                "kfs/format/compiled_decode.pxd",
                "kfs/render/compiled_output.pxd",
                "kfs/render/json_text.h",
                "kfs/render/output.h",
            ],
            extra_compile_args=["-O3"],
            optional=True,
        ),
        Extension(
            "kfs.render.compiled_arrow",
            ["kfs/render/compiled_arrow.pyx"],
            depends=["kfs/format/compiled_decode.pxd", "kfs/render/compiled_output.pxd", "kfs/render/output.h"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
        Extension(
            "kfs.read.compiled_selection",
            ["kfs/read/compiled_selection.pyx"],
            depends=["kfs/read/compiled_rows.pxi", "kfs/read/find_text.h"],
            include_dirs=["kfs/read"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
        Extension(
            "kfs.read.workers.compiled_memory",
            ["kfs/read/workers/compiled_memory.pyx"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
        Extension(
            "kfs.mount.kernel.compiled_reply_cache",
            ["kfs/mount/kernel/compiled_reply_cache.pyx"],
            depends=["kfs/mount/kernel/next_request.h"],
            include_dirs=["kfs/mount/kernel"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
    ]
)
