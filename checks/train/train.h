// SPDX-License-Identifier: Apache-2.0
// All that a program needs to train a net of its own beside fp64: the tape that nets are written against with its
// layers and regions, the trainer, what it watches, and what it makes of a run. Link ampcheck::train.
#pragma once

#include "checks/doors/plugin.h"
#include "checks/models/bound_call.h"
#include "checks/models/modules.h"
#include "checks/train/checkpoint.h"
#include "checks/train/diagnosis.h"
#include "checks/train/trace.h"
#include "checks/train/trainer.h"
#include "src/amp/autocast.h"
#include "src/amp/grad_mode.h"
#include "src/random.h"
