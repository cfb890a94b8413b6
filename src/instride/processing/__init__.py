"""What handles records beside the polls, on public names only."""
