"""What commands share: lazy groups, options, output, list filters, transfers."""
