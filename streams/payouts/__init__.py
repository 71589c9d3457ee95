"""Payouts: a saga for each, a ledger for all, and the channels that carry them out."""
