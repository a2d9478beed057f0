#include "runtime/service/tls/tls_connection.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/runtime/service/tls/tls_files.h"

namespace bulkhead {
namespace {

constexpr uint8_t kHandshakeRecord = 22;
// That does not ask for the same from the server.
const std::string kKeyUpdate{"\x18\0\0\1\0", 5};

unsigned char* Bytes(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

// Up to 32 bytes (RFC 8446, 7.1).
std::string Expand(std::string secret, const std::string& label, size_t bytes) {
  std::string info = absl::StrCat(std::string(1, '\0'), std::string(1, static_cast<char>(bytes)),
                                  std::string(1, static_cast<char>(6 + label.size())), "tls13 ",
                                  label, std::string(1, '\0'), "\x01");
  std::string out(EVP_MAX_MD_SIZE, '\0');
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), Bytes(info), info.size(),
       Bytes(out), nullptr);
  return out.substr(0, bytes);
}

// The client's record of that number after its handshake (RFC 8446, 5.2).
std::string Record(const std::string& secret, uint8_t number, uint8_t type,
                   const std::string& content) {
  std::string key = Expand(secret, "key", 16), nonce = Expand(secret, "iv", 12);
  nonce.back() = static_cast<char>(nonce.back() ^ number);
  std::string plain = content + static_cast<char>(type);
  std::string head{23, 3, 3, 0, static_cast<char>(plain.size() + 16)};
  std::string sealed(plain.size() + 16, '\0');
  EVP_CIPHER_CTX* const cipher = EVP_CIPHER_CTX_new();
  int done = 0;
  EVP_EncryptInit_ex(cipher, EVP_aes_128_gcm(), nullptr, Bytes(key), Bytes(nonce));
  EVP_EncryptUpdate(cipher, nullptr, &done, Bytes(head), static_cast<int>(head.size()));
  EVP_EncryptUpdate(cipher, Bytes(sealed), &done, Bytes(plain), static_cast<int>(plain.size()));
  EVP_EncryptFinal_ex(cipher, Bytes(sealed) + done, &done);
  EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_GET_TAG, 16, sealed.data() + plain.size());
  EVP_CIPHER_CTX_free(cipher);
  return head + sealed;
}

class TlsConnectionTest : public testing::Test {
 protected:
  TlsConnectionTest() {
    std::tie(client_, server_) = Pair();
    std::tie(front_, inner_) = Pair();
    connection_ = std::make_unique<TlsConnection>(
        (*TlsContext::Load(TestTlsFiles(), kAlpnHttp1))->NewSession(server_), server_, "", now_);
    context_.reset(SSL_CTX_new(TLS_client_method()));
    SSL_CTX_set_ciphersuites(context_.get(), "TLS_AES_128_GCM_SHA256");
    SSL_CTX_set_keylog_callback(context_.get(), [](const SSL* ssl, const char* line) {
      const std::string text = line;
      if (text.rfind("CLIENT_TRAFFIC_SECRET_0 ", 0) != 0) return;
      auto& secret = *static_cast<std::string*>(SSL_get_app_data(ssl));
      for (size_t at = text.rfind(' ') + 1; at < text.size(); at += 2) {
        secret += static_cast<char>(std::stoi(text.substr(at, 2), nullptr, 16));
      }
    });
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_app_data(ssl_.get(), &secret_);
    SSL_set_fd(ssl_.get(), client_);
    while (SSL_connect(ssl_.get()) != 1) connection_->Move(now_);
    while (!connection_->handshake_done()) connection_->Move(now_);
    connection_->Open(inner_);
    connection_->Move(now_);
  }
  ~TlsConnectionTest() override {
    connection_->Close();
    close(client_);
    close(front_);
  }

  // Whether epoll tells the terminator of more without end, however often it moves what there is.
  bool IsWokenForever() {
    for (int turn = 0; turn < 10'000; ++turn) {
      const uint32_t of_client = connection_->client_events();
      const uint32_t of_inner = connection_->inner_events();
      pollfd ends[] = {{of_client == 0 ? -1 : server_, static_cast<short>(of_client), 0},
                       {of_inner == 0 ? -1 : inner_, static_cast<short>(of_inner), 0}};
      if (connection_->is_closed() || poll(ends, 2, 0) == 0) return false;
      connection_->Move(now_);
    }
    return true;
  }
  void SendAsClient(const std::string& bytes) {
    EXPECT_EQ(send(client_, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }
  std::string ReadAsClient() {
    char bytes[64];
    const int got = SSL_read(ssl_.get(), bytes, sizeof(bytes));
    return {bytes, static_cast<size_t>(std::max(got, 0))};
  }

  const absl::Time now_ = absl::UnixEpoch();
  int client_, server_, front_, inner_;
  std::string secret_;  // of the client's records
  std::unique_ptr<TlsConnection> connection_;
  std::unique_ptr<SSL_CTX, TlsContext::Free> context_;
  std::unique_ptr<SSL, TlsContext::Free> ssl_;

 private:
  static std::pair<int, int> Pair() {
    int pair[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    return {pair[0], pair[1]};
  }
};

TEST_F(TlsConnectionTest, HalfAMessageOfTheHandshakeIsWaitedFor) {
  SendAsClient(Record(secret_, 0, kHandshakeRecord, kKeyUpdate.substr(0, 4)));
  EXPECT_FALSE(IsWokenForever());
  ASSERT_EQ(send(front_, "a", 1, 0), 1);
  EXPECT_FALSE(IsWokenForever()) << "OpenSSL writes nothing before the rest of the message";
  SendAsClient(Record(secret_, 1, kHandshakeRecord, kKeyUpdate.substr(4)));
  EXPECT_FALSE(IsWokenForever());
  EXPECT_EQ(ReadAsClient(), "a");
}

TEST_F(TlsConnectionTest, HalfAMessageOfTheHandshakeIsWaitedForOnceTheFrontEndHasClosed) {
  SendAsClient(Record(secret_, 0, kHandshakeRecord, kKeyUpdate.substr(0, 4)));
  EXPECT_FALSE(IsWokenForever());
  ASSERT_EQ(send(front_, "a", 1, 0), 1);
  shutdown(front_, SHUT_RDWR);
  connection_->InnerClosed(now_);
  EXPECT_FALSE(IsWokenForever());
  SendAsClient(Record(secret_, 1, kHandshakeRecord, kKeyUpdate.substr(4)));
  connection_->Move(now_);
  EXPECT_EQ(ReadAsClient(), "a");
  EXPECT_TRUE(connection_->is_closed());
}

TEST_F(TlsConnectionTest, AClientThatDoesNotReadTheAnswersToItsKeyUpdatesIsWaitedFor) {
  while (SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_REQUESTED) == 1 &&
         SSL_do_handshake(ssl_.get()) == 1) {
    ASSERT_FALSE(IsWokenForever());
  }
  EXPECT_FALSE(connection_->is_closed());
  EXPECT_EQ(connection_->client_events(), uint32_t{EPOLLOUT});
}

TEST_F(TlsConnectionTest, AClientWhoseSocketIsFullIsToldOfTheEndOnceItReads) {
  while (connection_->client_events() != (EPOLLIN | EPOLLOUT)) {
    ASSERT_EQ(send(front_, "a", 1, 0), 1);
    connection_->Move(now_);
  }
  EXPECT_EQ(ReadAsClient(), "a");  // room for the last record, and for no alert behind it
  shutdown(front_, SHUT_WR);
  connection_->Move(now_);
  connection_->Move(now_);
  while (ReadAsClient() == "a") connection_->Move(now_);
  EXPECT_EQ(SSL_get_shutdown(ssl_.get()), SSL_RECEIVED_SHUTDOWN);
}

}  // namespace
}  // namespace bulkhead
