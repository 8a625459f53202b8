package operator

import (
	"crypto/ed25519"
	"fmt"
	"net"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"sluice/internal/base/regular"
	"sluice/internal/fleet/trust"
)

// AgentSigners are the ed25519 keys of an ssh-agent at a Unix socket, and how to leave it.
func AgentSigners(socket string) ([]trust.Signer, func(), error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, nil, fmt.Errorf("ssh-agent: %w", err)
	}
	client := agent.NewClient(conn)
	keys, err := client.List()
	if err != nil {
		conn.Close()
		return nil, nil, fmt.Errorf("ssh-agent: %w", err)
	}
	var signers []trust.Signer
	for _, key := range keys {
		if public, err := ed25519Key(key); err == nil {
			signers = append(signers, agentSigner{client, key, public})
		}
	}
	return signers, func() { conn.Close() }, nil
}

type agentSigner struct {
	client agent.Agent
	key    ssh.PublicKey
	public ed25519.PublicKey
}

func (s agentSigner) Public() ed25519.PublicKey { return s.public }

// Sign gets the signature of ssh-ed25519, which is over the message itself (RFC 8709).
func (s agentSigner) Sign(message []byte) ([]byte, error) {
	signature, err := s.client.Sign(s.key, message)
	if err != nil {
		return nil, fmt.Errorf("ssh-agent: %w", err)
	}
	if signature.Format != ssh.KeyAlgoED25519 || !ed25519.Verify(s.public, message, signature.Blob) {
		return nil, fmt.Errorf("ssh-agent: it signed otherwise than with %s", ssh.KeyAlgoED25519)
	}
	return signature.Blob, nil
}

func ed25519Key(key ssh.PublicKey) (ed25519.PublicKey, error) {
	parsed, err := ssh.ParsePublicKey(key.Marshal())
	if err != nil {
		return nil, err
	}
	if crypto, is := parsed.(ssh.CryptoPublicKey); is {
		if public, is := crypto.CryptoPublicKey().(ed25519.PublicKey); is {
			return public, nil
		}
	}
	return nil, fmt.Errorf("a key of type %s, and all must be %s", key.Type(), ssh.KeyAlgoED25519)
}

// ReadPublic reads a public key as ssh-keygen writes it: a key whose private half is in
// an ssh-agent, or on a token.
func ReadPublic(path string) (ed25519.PublicKey, error) {
	text, err := regular.Read(path, maxKeyFile)
	if err != nil {
		return nil, err
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: no public key as ssh-keygen writes them", path, trust.ErrMalformed)
	}
	public, err := ed25519Key(key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return public, nil
}
