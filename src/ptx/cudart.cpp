// SPDX-License-Identifier: Apache-2.0
// The stand-in for the CUDA runtime: a library of its own, which the program holds as bytes and loads in front of
// plug-ins (src/ptx/stand_in.cpp). Each of its functions asks the program.
#include "src/ptx/cuda_calls.h"

namespace {
AmpcheckCudaCalls answers;
}

extern "C" {

void ampcheck_answer_cuda(const AmpcheckCudaCalls* calls) { answers = *calls; }

#define AMPCHECK_FORWARD(R, NAME, OWN, PARAMETERS, ARGUMENTS) \
  R NAME PARAMETERS { return answers.OWN ARGUMENTS; }
AMPCHECK_CUDA_CALLS(AMPCHECK_FORWARD)
#undef AMPCHECK_FORWARD
}
