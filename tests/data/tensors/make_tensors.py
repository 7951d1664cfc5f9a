#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes the tensor files of this folder with the packages that people save theirs with: numpy, safetensors, ml_dtypes.
# tests/src/tensor_file_test.cpp knows the values. Run: python3 make_tensors.py
import os

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

here = os.path.dirname(os.path.abspath(__file__))
bf16 = np.array([1.0, -0.5, 3.140625, np.inf, np.nan, 2.0**-133], ml_dtypes.bfloat16).reshape(2, 3)
tensors = {
    "f64": np.array([0.1, -0.0, 5e-324]),
    "f32": np.arange(6, dtype=np.float32).reshape(2, 3) / 4,
    "f16": np.array([[65504, 2.0**-24]], np.float16),
    "i64": np.array([-(2**62), 7], np.int64),
    "i32": np.array([-3, 4], np.int32),
    "u8": np.array([0, 255], np.uint8),
    "mask": np.array([[True, False], [False, True]]),
    "scalar": np.array(2.5, np.float32),
    "empty": np.zeros((0, 4), np.float32),
}
save_file({**tensors, "bf16": bf16, "e4m3": np.array([448, -0.0625], ml_dtypes.float8_e4m3fn),
           "e5m2": np.array([57344, -0.25], ml_dtypes.float8_e5m2)}, os.path.join(here, "numpy.safetensors"), metadata={"format": "np"})
fortran = {**tensors, "fortran": np.asfortranarray(np.arange(24, dtype=np.float64).reshape(2, 3, 4))}
np.savez(os.path.join(here, "stored.npz"), **fortran)
np.savez_compressed(os.path.join(here, "deflated.npz"), **fortran)
np.save(os.path.join(here, "fortran.npy"), fortran["fortran"])
with open(os.path.join(here, "version3.npy"), "wb") as file:
    np.lib.format.write_array(file, tensors["f16"], version=(3, 0))
np.save(os.path.join(here, "object.npy"), np.array([1, "a"], object), allow_pickle=True)
np.save(os.path.join(here, "big_endian.npy"), np.array([1.0], ">f4"))
np.save(os.path.join(here, "bfloat16.npy"), bf16)
