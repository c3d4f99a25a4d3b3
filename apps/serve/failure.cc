#include "failure.h"

#include "api_error.h"
#include "said_by.h"

namespace tenon::serve {

Failure failure_by(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const ApiError& e) {
    return {e.status, e.what(), e.param, e.code};
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kRequest) return {400, said_by(e), "", "", true};
    return {500, said_by(e), "", "engine_error"};
  } catch (const std::exception& e) {
    return {500, e.what(), "", "engine_error"};
  } catch (...) {
    return {500, "the request failed", "", "engine_error"};
  }
}

}  // namespace tenon::serve
