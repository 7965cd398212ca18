"""Tables that people made: curves from columns, whatever sheet, database or paper holds them."""
