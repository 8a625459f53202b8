// Dex is a real OpenID Connect provider for tests of the controller, on loopback: dexidp/dex
// with one client and one person. It is a module of its own, so that nothing else depends on
// what dex does. It prints its issuer, and ends when its standard input does.
//
//	dex CLIENT SECRET REDIRECT-URL EMAIL PASSWORD
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/dexidp/dex/server"
	"github.com/dexidp/dex/storage"
	"github.com/dexidp/dex/storage/memory"
	"github.com/dexidp/dex/web"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"golang.org/x/crypto/bcrypt"
)

func main() {
	if len(os.Args) != 6 {
		log.Fatal("usage: dex CLIENT SECRET REDIRECT-URL EMAIL PASSWORD")
	}
	if err := serve(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]); err != nil {
		log.Fatal(err)
	}
}

func serve(client, secret, redirect, email, password string) error {
	logger := logrus.New()
	logger.SetLevel(logrus.ErrorLevel)
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.DefaultCost)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := memory.New(logger)
	s = storage.WithStaticClients(s, []storage.Client{{ID: client, Secret: secret, Name: "sluice", RedirectURIs: []string{redirect}}})
	s = storage.WithStaticPasswords(s, []storage.Password{{Email: email, Hash: hash, Username: "erika", UserID: "7"}}, logger)
	s = storage.WithStaticConnectors(s, []storage.Connector{{ID: server.LocalConnector, Name: "Email", Type: server.LocalConnector}})
	issuer := "http://" + l.Addr().String() + "/dex"
	handler, err := server.NewServer(context.Background(), server.Config{
		Issuer: issuer, Storage: s, Logger: logger, SkipApprovalScreen: true, Web: server.WebConfig{WebFS: web.FS()}, PrometheusRegistry: prometheus.NewRegistry(),
	})
	if err != nil {
		return err
	}
	fmt.Println(issuer)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return (&http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}).Serve(l)
}
