// A connection is a coroutine on a strand of its own, which reads a request, answers it, and begins again.
//
// While an answer is being made, one read is under way. It ends when the client goes away, which cancels what it asked
// for, or when it sends the next request early: those bytes are kept for the next round, and no further read is begun.
// The read is never cancelled itself: the next round waits for it. The coroutine sleeps on a timer that nobody lets
// expire; whoever has something for it, on whatever thread, posts the timer's cancellation to the strand, so that no
// call is lost between looking and sleeping.
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "http_server.h"

namespace tenon::serve {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = net::ip::tcp;
using boost::system::error_code;
using PlainStream = beast::tcp_stream;
using TlsStream = beast::ssl_stream<beast::tcp_stream>;

inline constexpr auto kCall = net::as_tuple(net::use_awaitable);
inline constexpr auto kLinger = std::chrono::seconds(2);  // a client has so long to read why it is not answered
inline constexpr uint64_t kLingerBytes = uint64_t{256} << 20U;

using Clock = std::chrono::steady_clock;

inline Clock::duration duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// The server lends this to its connections.
struct Shared {
  Shared(const HttpOptions& o, Api& a, Driver& d) : options(o), api(a), driver(d) {}

  const HttpOptions options;
  Api& api;
  Driver& driver;
  std::atomic<bool> draining = false;
};

class ConnectionBase {
 public:
  virtual ~ConnectionBase() = default;
  // [any thread] The server drains: closes the connection unless it is being answered.
  virtual void drain() = 0;
};

template <class Stream>
class Connection : public ConnectionBase, public std::enable_shared_from_this<Connection<Stream>> {
 public:
  Connection(Stream stream, std::shared_ptr<Shared> shared)
      : stream_(std::move(stream)), signal_(stream_.get_executor()), shared_(std::move(shared)) {}

  net::awaitable<void> run();
  net::any_io_executor executor() { return stream_.get_executor(); }
  void drain() override {
    net::post(stream_.get_executor(), [self = this->shared_from_this()] {
      if (!self->busy_) self->close();
      self->signal_.cancel();
    });
  }

 private:
  using Parser = http::request_parser<http::string_body>;

  net::awaitable<bool> shake_hands();
  net::awaitable<bool> serve_one();
  net::awaitable<bool> await_read_ahead();
  net::awaitable<bool> refuse(error_code problem);
  net::awaitable<bool> answer(const HttpRequest& request, bool keep, bool whole_chunks);
  net::awaitable<bool> wait_for_answer(Reply& reply, bool stream, bool keep, bool chunked);
  net::awaitable<bool> send(const HttpResponse& response, bool keep, bool head_only = false);
  net::awaitable<bool> write(std::string bytes);
  net::awaitable<void> linger();
  net::awaitable<bool> sleep();

  void watch();
  void close() {
    error_code ignored;
    beast::get_lowest_layer(stream_).socket().close(ignored);
  }
  void expire_after(double seconds) { beast::get_lowest_layer(stream_).expires_after(duration(seconds)); }

  Stream stream_;
  net::steady_timer signal_;
  std::shared_ptr<Shared> shared_;
  beast::flat_buffer buffer_;
  unsigned version_ = 11;
  bool reading_ = false;  // the read ahead is under way
  bool gone_ = false;     // true: the client is gone
  bool busy_ = false;     // a request is being read or answered
  Clock::time_point deadline_ = Clock::time_point::max();
};

// Waits until somebody wakes the connection, or for its deadline. Returns false at the deadline.
template <class Stream>
net::awaitable<bool> Connection<Stream>::sleep() {
  signal_.expires_at(deadline_);
  const auto [problem] = co_await signal_.async_wait(kCall);
  co_return problem == net::error::operation_aborted;
}

template <class Stream>
net::awaitable<bool> Connection<Stream>::write(std::string bytes) {
  expire_after(shared_->options.write_seconds);
  const auto [problem, count] = co_await net::async_write(stream_, net::buffer(bytes), kCall);
  static_cast<void>(count);
  if (problem) gone_ = true;
  co_return !problem;
}

// `length` is that of the body; nullopt means that it follows in pieces.
inline std::string head_of(const HttpResponse& response, std::optional<size_t> length, unsigned version, bool keep) {
  http::response<http::empty_body> head(static_cast<http::status>(response.status), version);
  head.set(http::field::server, "tenon");
  head.set(http::field::content_type, response.content_type);
  for (const auto& [name, value] : response.headers) head.set(name, value);
  if (length) head.set(http::field::content_length, std::to_string(*length));
  head.keep_alive(keep);
  std::ostringstream text;
  text << head.base();
  return text.str();
}

template <class Stream>
net::awaitable<bool> Connection<Stream>::send(const HttpResponse& response, bool keep, bool head_only) {
  std::string bytes = head_of(response, response.body.size(), version_, keep);
  if (!head_only) bytes += response.body;
  const bool written = co_await write(std::move(bytes));
  co_return written&& keep;
}

// Reads one piece while an answer is made; see the top.
template <class Stream>
void Connection<Stream>::watch() {
  if (reading_ || gone_ || buffer_.size() > 0) return;
  constexpr size_t kPiece = 4096;
  reading_ = true;
  beast::get_lowest_layer(stream_).expires_never();
  stream_.async_read_some(buffer_.prepare(kPiece), [self = this->shared_from_this()](error_code problem, size_t count) {
    self->reading_ = false;
    self->gone_ = self->gone_ || problem;
    if (!problem) self->buffer_.commit(count);
    self->signal_.cancel();
  });
}

// Returns false if the connection is over.
template <class Stream>
net::awaitable<bool> Connection<Stream>::await_read_ahead() {
  deadline_ = Clock::now() + duration(shared_->options.read_seconds);
  while (reading_ && !gone_ && !shared_->draining) {
    const bool woken = co_await sleep();
    if (!woken) break;
  }
  co_return !reading_ && !gone_;
}

// Takes what the client still sends, so that closing does not throw away what was said to it.
template <class Stream>
net::awaitable<void> Connection<Stream>::linger() {
  auto& socket = beast::get_lowest_layer(stream_).socket();
  error_code problem;
  socket.shutdown(tcp::socket::shutdown_send, problem);
  beast::get_lowest_layer(stream_).expires_after(kLinger);
  std::vector<char> waste(65536);
  for (uint64_t taken = 0; !problem && taken < kLingerBytes;) {
    const auto [failed, count] = co_await beast::get_lowest_layer(stream_).async_read_some(net::buffer(waste), kCall);
    taken += count;
    problem = failed;
  }
}

// A request that could not be read is answered with the reason.
template <class Stream>
net::awaitable<bool> Connection<Stream>::refuse(error_code problem) {
  const HttpOptions& o = shared_->options;
  std::optional<ApiError> error;
  if (problem == http::error::body_limit) {
    error.emplace(413, "the body has more than " + std::to_string(o.max_body_bytes) + " bytes", "", "body_too_large");
  } else if (problem == http::error::header_limit) {
    error.emplace(431, "the header has more than " + std::to_string(o.max_header_bytes) + " bytes");
  } else if (problem == beast::error::timeout || problem == http::error::end_of_stream || !problem ||
             problem.category() != make_error_code(http::error::bad_method).category()) {
    co_return false;  // there is nobody to tell
  } else {
    error.emplace(400, "the request is not HTTP/1.1: " + problem.message());
  }
  const bool written = co_await send(error_response(*error), false);
  if (written || !gone_) co_await linger();
  co_return false;
}

// Waits for the generation's events and passes them on. Returns true if the connection may go on.
template <class Stream>
net::awaitable<bool> Connection<Stream>::wait_for_answer(Reply& reply, bool stream, bool keep, bool chunked) {
  PendingAnswer& answer = *reply.answer;
  const double limit = shared_->options.request_seconds;
  deadline_ = limit > 0 ? reply.generation->arrived + duration(limit) : Clock::time_point::max();
  bool begun = false;  // the head of a stream was written
  while (!gone_) {
    watch();
    std::string chunks = answer.add(reply.generation->take());
    const bool over = answer.complete() || answer.failure();
    if (over && answer.failure() && !begun) co_return co_await send(error_response(*answer.failure()), keep);
    if (over && !stream) {
      HttpResponse response;
      response.body = answer.whole();
      co_return co_await send(response, keep);
    }
    if (answer.failure()) chunks += sse(error_json(*answer.failure()));
    if (!chunks.empty()) {
      std::string bytes;
      if (!begun) {
        HttpResponse head;
        head.content_type = "text/event-stream; charset=utf-8";
        head.headers.emplace_back("Cache-Control", "no-store");
        if (chunked) head.headers.emplace_back("Transfer-Encoding", "chunked");
        bytes = head_of(head, std::nullopt, version_, keep);
        begun = true;
      }
      if (chunked) {
        std::ostringstream size;
        size << std::hex << chunks.size() << "\r\n";
        bytes += size.str() + chunks + "\r\n";
        if (over) bytes += "0\r\n\r\n";
      } else {
        bytes += chunks;
      }
      const bool written = co_await write(std::move(bytes));
      if (!written) break;
      if (!over) continue;  // whoever woke the connection while it wrote is not going to do so again
    }
    if (over) co_return keep;
    const bool woken = co_await sleep();
    if (!woken) {  // it is too late: the answer ends with what the engine says of it
      shared_->driver.cancel(*reply.generation);
      deadline_ = Clock::time_point::max();
    }
  }
  co_return false;
}

template <class Stream>
net::awaitable<bool> Connection<Stream>::answer(const HttpRequest& request, bool keep, bool chunked) {
  auto wake = [weak = this->weak_from_this()] {
    if (auto self = weak.lock()) {
      net::post(self->stream_.get_executor(), [self] { self->signal_.cancel(); });
    }
  };
  Reply reply = shared_->api.handle(request, wake);
  if (!reply.generation) {
    const bool head_only = request.method == "HEAD";
    co_return co_await send(reply.response, keep, head_only);
  }
  const bool goes_on = co_await wait_for_answer(reply, reply.generation->stream,
                                                keep && (chunked || !reply.generation->stream), chunked);
  if (!reply.answer->complete()) shared_->driver.cancel(*reply.generation);
  co_return goes_on;
}

// Reads one request and answers it. Returns false if the connection is over.
template <class Stream>
net::awaitable<bool> Connection<Stream>::serve_one() {
  const HttpOptions& o = shared_->options;
  Parser parser;
  parser.header_limit(o.max_header_bytes);
  parser.body_limit(o.max_body_bytes);
  expire_after(o.read_seconds);
  const auto [bad_head, head_bytes] = co_await http::async_read_header(stream_, buffer_, parser, kCall);
  static_cast<void>(head_bytes);
  if (bad_head) co_return co_await refuse(bad_head);
  busy_ = true;
  version_ = parser.get().version();
  HttpRequest request;
  const std::string_view target(parser.get().target().data(), parser.get().target().size());
  request.method = std::string(parser.get().method_string());
  request.path = std::string(target.substr(0, target.find('?')));
  request.authorization = std::string(parser.get()[http::field::authorization]);
  std::optional<ApiError> locked_out;
  try {
    shared_->api.check_key(request.path, request.authorization);
  } catch (const ApiError& e) {
    locked_out = e;
  }
  if (locked_out) {  // before the body is read
    const bool nothing_follows = parser.is_done();
    const bool open = co_await send(error_response(*locked_out), nothing_follows && parser.get().keep_alive());
    if (!nothing_follows) co_await linger();
    co_return open&& nothing_follows;
  }
  if (beast::iequals(parser.get()[http::field::expect], "100-continue")) {
    const bool written = co_await write("HTTP/1.1 100 Continue\r\n\r\n");
    if (!written) co_return false;
    expire_after(o.read_seconds);
  }
  const auto [bad_body, body_bytes] = co_await http::async_read(stream_, buffer_, parser, kCall);
  static_cast<void>(body_bytes);
  if (bad_body) co_return co_await refuse(bad_body);
  request.body = std::move(parser.get().body());
  const bool keep = parser.get().keep_alive() && !shared_->draining;
  const bool goes_on = co_await answer(request, keep, version_ == 11);
  co_return goes_on && !shared_->draining;
}

template <>
inline net::awaitable<bool> Connection<PlainStream>::shake_hands() {
  co_return true;
}
template <>
inline net::awaitable<bool> Connection<TlsStream>::shake_hands() {
  expire_after(shared_->options.read_seconds);
  const auto [problem] = co_await stream_.async_handshake(net::ssl::stream_base::server, kCall);
  co_return !problem;
}

template <class Stream>
net::awaitable<void> Connection<Stream>::run() {
  const auto self = this->shared_from_this();
  bool open = co_await shake_hands();
  while (open && !shared_->draining) {
    busy_ = buffer_.size() > 0;
    open = co_await await_read_ahead();
    if (!open) break;
    open = co_await serve_one();
  }
  if (!gone_) {
    error_code ignored;
    beast::get_lowest_layer(stream_).socket().shutdown(tcp::socket::shutdown_both, ignored);
  }
  close();  // ends the read ahead, too
}

}  // namespace tenon::serve
