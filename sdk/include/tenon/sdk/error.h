// A component says no by throwing one of these; at the boundary the exception becomes a status and a message.
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "tenon/abi/types.h"

namespace tenon::sdk {

// The component does not do this: the host asks another component, or for another way, and prints the reason.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// Memory or the cache is used up; the same call may work later.
struct NoSpace : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// This is thrown for anything else that went wrong.
struct Failed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void fill_reason(tenon_reason* why, const char* text) noexcept {
  if (why == nullptr || why->text == nullptr || why->cap == 0) return;
  const size_t n = std::min<size_t>(std::strlen(text), why->cap - 1);
  std::memcpy(why->text, text, n);
  why->text[n] = '\0';
}

// It runs f and turns an exception into a status and the text of `why`, which may be null; none gets out.
template <class F>
tenon_status guard(tenon_reason* why, F&& f) noexcept {
  try {
    f();
    return TENON_OK;
  } catch (const Refused& e) {
    fill_reason(why, e.what());
    return TENON_REFUSED;
  } catch (const NoSpace& e) {
    fill_reason(why, e.what());
    return TENON_NO_SPACE;
  } catch (const std::bad_alloc&) {
    fill_reason(why, "out of host memory");
    return TENON_NO_SPACE;
  } catch (const std::exception& e) {
    fill_reason(why, e.what());
  } catch (...) {
    fill_reason(why, "an exception that is no std::exception");
  }
  return TENON_ERROR;
}

// It copies a struct as this side knows it, whatever size the other side wrote: missing fields are 0.
template <class T>
T read_abi(const T* in) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  T out{};
  std::memcpy(&out, in, std::min<size_t>(in->h.size, sizeof(T)));
  return out;
}

// It writes into the other side's struct no more than that has room for; the head stays.
template <class T>
void write_abi(T* out, const T& value) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  const size_t size = std::min<size_t>(out->h.size, sizeof(T));
  const auto* from = reinterpret_cast<const char*>(&value) + sizeof(tenon_head);
  std::memcpy(reinterpret_cast<char*>(out) + sizeof(tenon_head), from, size - sizeof(tenon_head));
}

// It makes a T of zeros with its head filled in.
template <class T>
constexpr T abi_struct() noexcept {
  T value{};
  value.h = tenon_head{sizeof(T), 1, 0};
  return value;
}

}  // namespace tenon::sdk
