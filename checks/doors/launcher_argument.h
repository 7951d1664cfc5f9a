// SPDX-License-Identifier: Apache-2.0
// The argument list of an existing launcher as a TOML file writes it: C parameters, each with what is passed in the
// place of its name.
//
//   "const void* x"        the data of a tensor; null for one that is absent. A type that is known (float, half, ...)
//   has to be that of
//                          the tensor in every case; const int32_t* of an int64 index gets a copy in int32
//   "int64_t N"            the extent of a dimension
//   "int N * D"            + - * / ( ) over extents, attributes and numbers; whole types divide as C does
//   "float eps"            an attribute
//   "int dtype"            the code of the storage type of the case, by the file's [dtypes]; "int dtype(x)" that of a
//   tensor "int64_t stride(x, 0)" in elements; also size(x, axis), count(x), bytes(x), present(x) "const int64_t*
//   strides(x)", "const int64_t* shape(x)"     arrays of as many numbers as the tensor has dimensions "cudaStream_t
//   stream", "void* workspace", "size_t workspace_bytes", "void* null"
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checks/doors/pointee.h"
#include "src/api/ampcheck/ampcheck_op.h"
#include "src/error.h"

namespace ampcheck::checks {

/// A text that is no argument; `at` is the offset in it. "want, got X": without the place, which the reader of the file
/// knows.
struct ArgumentError : Error {
  ArgumentError(std::size_t offset, const std::string& what) : Error(what), at(offset) {}
  std::size_t at;
};

/// Where a tensor of a call stands.
struct TensorSlot {
  enum class List : std::uint8_t {
    inputs,
    outputs,
    saved,
    cotangents,
    gradients,
    gradient_cotangents,
    cotangent_gradients
  } list = List::inputs;
  std::int32_t index = 0;

  bool operator==(const TensorSlot&) const = default;
  /// Null if it is absent.
  const ac_tensor* of(const ac_call& call) const;
};

/// The names that arguments of one launcher may use.
struct ArgumentNames {
  std::map<std::string, TensorSlot> tensors;
  std::map<std::string, TensorFacts> facts;  ///< of tensors; of one without, pointers are not judged
  std::map<std::string, std::vector<std::pair<TensorSlot, int>>> dims;  ///< inputs and axes that have the symbol
  std::map<std::string, std::int32_t> attributes;                       ///< index in the call
  std::map<std::int32_t, std::int64_t> dtype_codes;     ///< AC_FP32, ... -> the launcher's code; empty: none declared
  std::map<std::string, std::int32_t> workspaces = {};  ///< index in the context; the only one is "workspace"

  std::vector<std::string> all() const;
};

/// The numbers that one call adds.
struct ArgumentContext {
  const ac_call& call;
  const ArgumentNames& names;
  struct Scratch {
    void* data = nullptr;
    std::int64_t bytes = 0;
  };
  std::vector<Scratch> workspaces = {};
};

/// A value of a call, computed from what the call is given.
class ArgumentValue {
 public:
  enum class Kind : std::uint8_t {
    number,
    dim,
    attribute,
    storage_code,
    workspace_bytes,
    dtype_code,
    size,
    stride,
    count,
    bytes,
    present,
    negate,
    add,
    subtract,
    multiply,
    divide
  };

  /// Throws ArgumentError. `offset`: of `text` in the argument, for errors.
  static ArgumentValue parse(const std::string& text, const ArgumentNames& names, std::size_t offset = 0);
  /// Throws Error for a division by zero.
  double evaluate(const ArgumentContext& context, bool whole) const;
  bool uses(Kind kind) const;

 private:
  friend class ArgumentParser;
  Kind kind_ = Kind::number;
  double number_ = 0;
  std::string name_;
  TensorSlot slot_;
  std::vector<ArgumentValue> args_;
};

/// One parameter of a launcher.
class LauncherArgument {
 public:
  enum class Type : std::uint8_t { pointer, boolean, i32, u32, i64, u64, f32, f64 };

  /// Throws ArgumentError.
  static LauncherArgument parse(const std::string& text, const ArgumentNames& names);

  union Value {
    const void* pointer;
    std::int32_t i32;
    std::uint32_t u32;
    std::int64_t i64;
    std::uint64_t u64;
    float f32;
    double f64;
    std::uint8_t boolean;
  };
  Type type() const { return type_; }
  /// Whether the data of this tensor is passed.
  bool passes(TensorSlot slot) const { return source_ == Source::tensor && slot_ == slot; }
  /// The int64 tensor of the call that is passed as a copy in int32; null: none, or an absent one.
  const ac_tensor* narrowed(const ac_call& call) const { return narrowed_ ? slot_.of(call) : nullptr; }
  const std::string& text() const { return text_; }
  /// Throws Error for a number that the type cannot hold.
  Value evaluate(const ArgumentContext& context) const;

 private:
  friend class ParameterParser;
  enum class Source : std::uint8_t { value, tensor, shape, strides, stream, workspace, null };
  Type type_ = Type::pointer;
  Source source_ = Source::value;
  bool narrowed_ = false;
  TensorSlot slot_;
  ArgumentValue value_;
  std::string text_;
};

}  // namespace ampcheck::checks
