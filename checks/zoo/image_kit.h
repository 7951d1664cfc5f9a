// SPDX-License-Identifier: Apache-2.0
// What several kernels of images have in common: extents of a window's op, and lines of normalised channels.
#pragma once

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

/// Of conv2d and max_pool2d: x [N, C, H, W], and `out`, y or dy, [N, O, OH, OW].
struct ImageExtents {
  std::int64_t n, c, h, w, oh, ow, stride, padding;
  ImageExtents(const Call& call, const char* out)
      : n(call.shape("x")[0]),
        c(call.shape("x")[1]),
        h(call.shape("x")[2]),
        w(call.shape("x")[3]),
        oh(call.shape(out)[2]),
        ow(call.shape(out)[3]),
        stride(call.integer("stride")),
        padding(call.integer("padding")) {}
  bool inside(std::int64_t i, std::int64_t j) const { return i >= 0 && i < h && j >= 0 && j < w; }
  /// Place in x of a cell of plane `plane`.
  std::int64_t cell(std::int64_t plane, std::int64_t i, std::int64_t j) const { return (plane * h + i) * w + j; }
  /// The same, -1 outside of it.
  std::int64_t cell_or_none(std::int64_t plane, std::int64_t i, std::int64_t j) const {
    return inside(i, j) ? cell(plane, i, j) : -1;
  }
};

/// visit(image, channel, i, j, place) for each output.
template <class F>
void for_outputs(const ImageExtents& e, std::int64_t channels, F visit) {
  std::size_t at = 0;
  for (std::int64_t image = 0; image < e.n; ++image)
    for (std::int64_t o = 0; o < channels; ++o)
      for (std::int64_t i = 0; i < e.oh; ++i)
        for (std::int64_t j = 0; j < e.ow; ++j) visit(image, o, i, j, at++);
}

/// Lines of x [N, C, L]: the groups of each image or, with groups = 0, the channels of all images.
struct ChannelLines {
  std::int64_t images = 0, channels = 0, places = 0, groups = 0;
  ChannelLines() = default;
  ChannelLines(const Call& call, bool of_batch)
      : images(call.shape("x")[0]),
        channels(call.shape("x")[1]),
        places(call.shape("x")[2]),
        groups(of_batch ? 0 : call.integer("groups")) {}
  std::int64_t lines() const { return groups > 0 ? images * groups : channels; }
  std::int64_t parts() const { return groups > 0 ? channels / groups : images; }  ///< of a line: runs of `places`
  std::int64_t length() const { return parts() * places; }
  std::size_t at(std::int64_t line, std::int64_t i) const {
    if (groups > 0) return index_of(line * length() + i);
    return index_of((i / places * channels + line) * places + i % places);
  }
  std::size_t channel(std::size_t at) const { return at / index_of(places) % index_of(channels); }
};

}  // namespace ampcheck::checks::zoo
