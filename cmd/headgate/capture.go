package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/internal/app/client"
)

func captureCommand() *cobra.Command {
	var api client.API
	var period time.Duration
	var sample, hash string
	cmd := &cobra.Command{
		Use:   "capture --for 5m",
		Short: "Print what is asked of a running process, for headgate replay",
		Long: `Print each request that a running process decides, as a line of JSON that headgate replay reads.
serve --capture does the same into a file, all the time.

A process drops what it cannot send in time, and never has an answer wait. How many those were is
printed at the end, on standard error; the exit code is then 2.`,
		Example: `  headgate capture --for 5m | gzip >capture.jsonl.gz
  headgate capture --for 1h --sample 0.1 --hash user,remote_address >capture.jsonl`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := queryOf(map[string]string{"sample": sample, "hash": hash})
			dropped, err := api.Capture(cmd.Context(), period, query, cmd.OutOrStdout())
			if err == nil && dropped != "0" {
				err = fmt.Errorf("%s requests are missing: the process could not send them in time; --sample 0.1 takes a tenth "+
					"of the keys", dropped)
			}
			return err
		},
	}
	cmd.Flags().DurationVar(&period, "for", time.Minute, "for how long to capture, at most 1h")
	cmd.Flags().StringVar(&sample, "sample", "", "`part` of the keys to capture, such as 0.1 (default: all)")
	cmd.Flags().StringVar(&hash, "hash", "", "`keys` of entries whose values are hashed, with commas between them; * "+
		"for all")
	defineAdminAPI(cmd, &api)
	return cmd
}
