package operator

import (
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"io"
	"os"

	"filippo.io/age"
	"filippo.io/age/armor"

	"sluice/internal/base/regular"
	"sluice/internal/fleet/trust"
)

const (
	maxKeyFile = 64 << 10
	// maxWork bounds what a key file can have scrypt take: 1 GiB, some seconds.
	maxWork = 20
)

// work is scrypt's, as a power of two: a quarter of a GiB, a second. Tests take less.
var work = 18

// ErrPassphrase is why a key file was not opened.
var ErrPassphrase = errors.New("the passphrase is wrong")

// Passphrase says the passphrase of a key file, which is named for whoever asks people.
type Passphrase func(file string) (string, error)

// writeKey writes a key to a new file, encrypted unless the passphrase is "".
func writeKey(path string, key crypto.PrivateKey, passphrase string) error {
	text, err := trust.EncodePrivate(key)
	if err != nil {
		return err
	}
	if passphrase != "" {
		if text, err = encrypt(text, passphrase); err != nil {
			return err
		}
	}
	return writeNew(path, text, 0o600)
}

func encrypt(text []byte, passphrase string) ([]byte, error) {
	to, err := age.NewScryptRecipient(passphrase)
	if err != nil {
		return nil, err
	}
	to.SetWorkFactor(work)
	var out bytes.Buffer
	armored := armor.NewWriter(&out)
	w, err := age.Encrypt(armored, to)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	if err := errors.Join(w.Close(), armored.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func writeNew(path string, data []byte, mode os.FileMode) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// ReadKeyText reads a key file as PEM (PKCS #8), whatever key it has; it asks for the
// passphrase of an encrypted one.
func ReadKeyText(path string, ask Passphrase) ([]byte, error) {
	text, err := regular.Read(path, maxKeyFile)
	if err != nil {
		return nil, err
	}
	return opened(text, path, ask)
}

func opened(text []byte, path string, ask Passphrase) ([]byte, error) {
	if !bytes.HasPrefix(text, []byte(armor.Header)) {
		return text, nil
	}
	passphrase, err := ask(path)
	if err != nil {
		return nil, err
	}
	text, err = decrypt(text, passphrase)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return text, nil
}

func decrypt(text []byte, passphrase string) ([]byte, error) {
	by, err := age.NewScryptIdentity(passphrase)
	if err != nil {
		return nil, ErrPassphrase
	}
	by.SetMaxWorkFactor(maxWork)
	r, err := age.Decrypt(armor.NewReader(bytes.NewReader(text)), by)
	var none *age.NoIdentityMatchError
	if errors.As(err, &none) {
		return nil, ErrPassphrase
	}
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(r, maxKeyFile))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s", trust.ErrMalformed, err.Error())
	}
	return text, nil
}

// ReadKey reads the key of a role, - from standard input: CI has it in a variable, and on no
// disk.
func ReadKey(path string, ask Passphrase) (trust.Signer, error) {
	if path != "-" {
		text, err := ReadKeyText(path, ask)
		if err != nil {
			return nil, err
		}
		return decoded(text, path)
	}
	text, err := io.ReadAll(io.LimitReader(os.Stdin, maxKeyFile))
	if err == nil {
		text, err = opened(text, "standard input", ask)
	}
	if err != nil {
		return nil, err
	}
	return decoded(text, "standard input")
}

func decoded(text []byte, path string) (trust.Signer, error) {
	key, err := trust.DecodeRoleKey(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
}
