package serve

import (
	"strings"

	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/kit/certs"
	"github.com/headgate-rls/headgate/notify/kafka"
)

// topicOf returns the topic of the settings.
func topicOf(c *config.NotifyKafka) kafka.Topic {
	return kafka.Topic{Brokers: c.Brokers, Name: c.Topic, Partitions: c.Partitions, Replicas: c.Replicas,
		Access: kafka.Access{
			TLS: c.TLS, Files: certs.ClientFiles{Cert: c.TLSCert, Key: c.TLSKey, CA: c.TLSCA, ServerName: c.ServerName},
			Mechanism: strings.ToUpper(c.SASL), Username: c.Username, Password: c.Password, PasswordFile: c.PasswordFile,
		}}
}
