// A connection is a coroutine on a strand of its own: read a request, answer it, again.
//
// While an answer is being made, one read is under way. It ends when the client goes away, which cancels what it asked
// for, or when it sends the next request early: those bytes are kept for the next round, and no further read is begun. The
// read is never cancelled itself: the next round waits for it. The coroutine sleeps on a timer that nobody lets expire; whoever has something for it, on
// whatever thread, posts the timer's cancellation to the strand, so that no call is lost between looking and sleeping.
#include "http_server.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tenon/core/error.h"

namespace tenon::serve {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = net::ip::tcp;
using boost::system::error_code;
using PlainStream = beast::tcp_stream;
using TlsStream = beast::ssl_stream<beast::tcp_stream>;

constexpr auto kCall = net::as_tuple(net::use_awaitable);
constexpr auto kLinger = std::chrono::seconds(2);  // for a client to read why it is not answered
constexpr uint64_t kLingerBytes = uint64_t{256} << 20U;

std::chrono::nanoseconds duration(double seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

// What a connection needs of the server.
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
  bool gone_ = false;     // the client is
  bool busy_ = false;     // a request is being read or answered
  std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::time_point::max();
};

// Until somebody wakes the connection, or its deadline. False: the deadline has come.
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

std::string head_of(const HttpResponse& response, unsigned version, bool keep) {
  http::response<http::empty_body> head(static_cast<http::status>(response.status), version);
  head.set(http::field::server, "tenon");
  head.set(http::field::content_type, response.content_type);
  for (const auto& [name, value] : response.headers) head.set(name, value);
  head.keep_alive(keep);
  std::ostringstream text;
  text << head.base();
  return text.str();
}

template <class Stream>
net::awaitable<bool> Connection<Stream>::send(const HttpResponse& response, bool keep, bool head_only) {
  HttpResponse sized = response;
  sized.headers.emplace_back("Content-Length", std::to_string(response.body.size()));
  std::string bytes = head_of(sized, version_, keep);
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

// False: the connection is over.
template <class Stream>
net::awaitable<bool> Connection<Stream>::await_read_ahead() {
  deadline_ = std::chrono::steady_clock::now() +
              std::chrono::duration_cast<std::chrono::steady_clock::duration>(duration(shared_->options.read_seconds));
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

// Waits for the generation's events and passes them on. True: the connection may go on.
template <class Stream>
net::awaitable<bool> Connection<Stream>::wait_for_answer(Reply& reply, bool stream, bool keep, bool chunked) {
  Answer& answer = *reply.answer;
  const double limit = shared_->options.request_seconds;
  deadline_ = limit > 0 ? reply.generation->arrived +
                              std::chrono::duration_cast<std::chrono::steady_clock::duration>(duration(limit))
                        : std::chrono::steady_clock::time_point::max();
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
        bytes = head_of(head, version_, keep);
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
    if (!woken) {  // too late: the answer ends with what the engine says of it
      shared_->driver.cancel(*reply.generation);
      deadline_ = std::chrono::steady_clock::time_point::max();
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

// One request and its answer. False: the connection is over.
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
net::awaitable<bool> Connection<PlainStream>::shake_hands() {
  co_return true;
}
template <>
net::awaitable<bool> Connection<TlsStream>::shake_hands() {
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

std::string reason(const error_code& problem) {
  return problem.message();
}

net::ssl::context make_tls(const HttpOptions& o) {
  net::ssl::context tls(net::ssl::context::tls_server);
  tls.set_options(net::ssl::context::no_tlsv1 | net::ssl::context::no_tlsv1_1);
  if (o.tls_cert.empty()) return tls;
  error_code problem;
  tls.use_certificate_chain_file(o.tls_cert, problem);
  if (problem) throw Error(ErrorCode::kIo, {o.tls_cert, 0, 0}, "cannot be used as a certificate: " + reason(problem));
  tls.use_private_key_file(o.tls_key, net::ssl::context::pem, problem);
  if (problem)
    throw Error(ErrorCode::kIo, {o.tls_key, 0, 0}, "cannot be used as the certificate's key: " + reason(problem));
  return tls;
}

}  // namespace

// Outlives all that runs in its context.
struct HttpServer::Impl {
  explicit Impl(const HttpOptions& o)
      : options(o), tls(make_tls(o)), acceptor(net::make_strand(context)), room(acceptor.get_executor()) {}

  void listen();
  net::awaitable<void> accept_all();
  template <class Stream>
  void begin(Stream stream);

  const HttpOptions options;
  net::ssl::context tls;
  net::io_context context;
  net::executor_work_guard<net::io_context::executor_type> work{context.get_executor()};
  tcp::acceptor acceptor;
  net::steady_timer room;  // sleeps while there are as many connections as there may be
  std::shared_ptr<Shared> shared;
  std::vector<std::thread> threads;

  std::mutex mutex;
  std::condition_variable changed;
  std::unordered_set<std::shared_ptr<ConnectionBase>> connections;
  bool ended = false;  // accept_all() has
};

void HttpServer::Impl::listen() {
  const std::string where = options.host + ":" + std::to_string(options.port);
  error_code problem;
  tcp::resolver resolver(context);
  const auto found = resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, problem);
  if (problem || found.empty()) {
    throw Error(ErrorCode::kIo, "cannot listen on " + where + ": " + reason(problem));
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.open(endpoint.protocol(), problem);
  if (!problem) acceptor.set_option(net::socket_base::reuse_address(true), problem);
  if (!problem) acceptor.bind(endpoint, problem);
  if (!problem) acceptor.listen(net::socket_base::max_listen_connections, problem);
  if (problem) throw Error(ErrorCode::kIo, "cannot listen on " + where + ": " + reason(problem));
}

template <class Stream>
void HttpServer::Impl::begin(Stream stream) {
  auto connection = std::make_shared<Connection<Stream>>(std::move(stream), shared);
  const auto executor = connection->executor();
  {
    const std::lock_guard lock(mutex);
    connections.insert(connection);
  }
  net::co_spawn(
      executor, [connection] { return connection->run(); },
      [this, connection](const std::exception_ptr&) {  // its memory has run out: only it ends
        const std::lock_guard lock(mutex);
        connections.erase(connection);
        net::post(acceptor.get_executor(), [this] { room.cancel(); });
        changed.notify_all();
      });
}

net::awaitable<void> HttpServer::Impl::accept_all() {
  while (!shared->draining) {
    size_t count = 0;
    {
      const std::lock_guard lock(mutex);
      count = connections.size();
    }
    if (count >= options.max_connections) {
      room.expires_at(std::chrono::steady_clock::time_point::max());
      static_cast<void>(co_await room.async_wait(kCall));
      continue;
    }
    auto [problem, socket] = co_await acceptor.async_accept(net::make_strand(context), kCall);
    if (problem) {  // of one connection, or no descriptor is left: not a reason to end
      if (shared->draining || !acceptor.is_open()) break;
      room.expires_after(std::chrono::milliseconds(50));
      static_cast<void>(co_await room.async_wait(kCall));
      continue;
    }
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    if (options.tls_cert.empty()) {
      begin(PlainStream(std::move(socket)));
    } else {
      begin(TlsStream(beast::tcp_stream(std::move(socket)), tls));
    }
  }
  const std::lock_guard lock(mutex);
  ended = true;
  changed.notify_all();
}

HttpServer::HttpServer(const HttpOptions& options) : impl_(std::make_unique<Impl>(options)) {
  impl_->listen();
}

HttpServer::~HttpServer() {
  stop(0);
}

std::string HttpServer::url() const {
  const tcp::endpoint at = impl_->acceptor.local_endpoint();
  const std::string address = at.address().to_string();
  return std::string(impl_->options.tls_cert.empty() ? "http" : "https") + "://" +
         (at.address().is_v6() ? "[" + address + "]" : address) + ":" + std::to_string(at.port());
}

void HttpServer::start(Api& api, Driver& driver) {
  impl_->shared = std::make_shared<Shared>(impl_->options, api, driver);
  net::co_spawn(
      impl_->acceptor.get_executor(), [impl = impl_.get()] { return impl->accept_all(); }, net::detached);
  for (uint32_t i = 0; i < impl_->options.threads; ++i) {
    impl_->threads.emplace_back([impl = impl_.get()] { impl->context.run(); });
  }
}

void HttpServer::post(std::function<void()> function) {
  net::post(impl_->context, std::move(function));
}

void HttpServer::drain() {
  if (!impl_->shared) return;
  impl_->shared->draining = true;
  net::post(impl_->acceptor.get_executor(), [impl = impl_.get()] {
    error_code ignored;
    impl->acceptor.close(ignored);
    impl->room.cancel();
  });
  const std::lock_guard lock(impl_->mutex);
  for (const auto& connection : impl_->connections) connection->drain();
}

void HttpServer::stop(double seconds) {
  if (impl_->threads.empty()) return;
  drain();
  {
    std::unique_lock lock(impl_->mutex);
    impl_->changed.wait_for(lock, duration(seconds), [&] { return impl_->ended && impl_->connections.empty(); });
  }
  impl_->work.reset();
  impl_->context.stop();
  for (std::thread& thread : impl_->threads) thread.join();
  impl_->threads.clear();
}

}  // namespace tenon::serve
